# Prints the changes of the repositories in the folder $1 and in its subfolders relative to $2, `remote` or `head`, all texts
# followed by NUL. For each repository:
# its path, pairs of a status and a path, an empty text, paths of untracked files, an empty text. Exits with 3 if there is none.

base=$2
is_found=3

print_repository() {
    open_repository "$1" || return
    ours "$1" diff --name-status -z --no-renames --no-ext-diff --no-textconv --ignore-submodules=dirty "$reference" -- \
        >"$scratch/changed" || return
    ours "$1" ls-files -z --others --exclude-standard >"$scratch/untracked" || return
    printf '%s\0' "$2"
    cat "$scratch/changed"
    printf '\0'
    cat "$scratch/untracked"
    printf '\0'
    is_found=0
}

for_each_repository "$1"
exit "$is_found"
