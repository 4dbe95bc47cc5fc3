# Prints the content of the file $2, which is relative to the workspace $1, in the tree that it is compared with. Exits with 3
# if no folder above it is a repository, with 4 if the tree has no such file.

root=$1
below=$2
folder=$below
while :; do
    case $folder in
        */*) folder=${folder%/*} ;;
        *) folder= ;;
    esac
    at=$root${folder:+/$folder}
    [ -e "$at/.git" ] && break
    [ -n "$folder" ] || exit 3
done
open_repository "$at" || exit 3
path=${below#"${folder:+$folder/}"}
[ "$(ours "$at" cat-file -t "$reference:$path")" = blob ] || exit 4
ours "$at" cat-file blob "$reference:$path"
