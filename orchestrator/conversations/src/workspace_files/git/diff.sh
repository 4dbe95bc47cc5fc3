# Prints the changes of the file or folder $2, which is relative to the workspace $1, relative to $3, `remote` or `head`, as a patch
# of the workspace. An empty $2 is all repositories in the workspace and in its subfolders. Exits with 3 if there is none.

base=$3
is_found=3
export GIT_LITERAL_PATHSPECS=1

# Adds the untracked files to our index. Their object, the empty file, is written to our objects.
intend_to_add() (
    objects=$ours/objects
    ours "$1" add --intent-to-add --pathspec-from-file="$scratch/untracked" --pathspec-file-nul
)

# Prints the changes of the path $3 in the repository of the folder $1, which has the name $2.
print_changes() {
    open_repository "$1" || return
    if [ "$2" = . ]; then prefix=; else prefix=$2/; fi
    # Untracked files are added to our own copy of the index, without nested repositories. A program may remove one meanwhile.
    for attempt in 1 2 3 4 5; do
        ours "$1" ls-files -z --others --exclude-standard -- "$3" |
            tr '\0\n' '\n\0' | sed '/\/$/d' | tr '\n\0' '\0\n' >"$scratch/untracked"
        if [ ! -s "$scratch/untracked" ] || intend_to_add "$1"; then break; fi
        if [ "$attempt" = 5 ]; then exit 1; fi
    done
    # Whole or not at all.
    ours "$1" diff --binary --no-color --no-renames --no-ext-diff --no-textconv --ignore-submodules=dirty \
        --src-prefix="a/$prefix" --dst-prefix="b/$prefix" "$reference" -- "$3" >"$scratch/patch" || exit 1
    cat "$scratch/patch"
    is_found=0
}

print_repository() { print_changes "$1" "$2" .; }

if [ -z "$2" ]; then
    for_each_repository "$1"
elif find_above "$1" "$2"; then
    path=${2#"$above"}
    path=${path#/}
    print_changes "$1${above:+/$above}" "${above:-.}" "${path:-.}"
fi
exit "$is_found"
