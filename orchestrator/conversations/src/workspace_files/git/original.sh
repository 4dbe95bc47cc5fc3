# Prints the content of the file $2, which is relative to the workspace $1, in the tree of $3, `remote` or `head`. Exits with 3
# if no folder above it is a repository, with 4 if the tree has no such file.

root=$1
below=$2
base=$3
case $below in
    */*) find_above "$root" "${below%/*}" ;;
    *) find_above "$root" '' ;;
esac || exit 3
at=$root${above:+/$above}
open_repository "$at" || exit 3
path=${below#"${above:+$above/}"}
[ "$(ours "$at" cat-file -t "$reference:$path")" = blob ] || exit 4
ours "$at" cat-file blob "$reference:$path"
