# Functions for the scripts of this folder. They read a repository without its configuration: the configuration, the
# attributes and the hooks of a repository can name programs, and nothing that is read here may run one.
#
# For each repository, a git directory of our own is created. It has a fixed configuration, and uses only the objects and a
# copy of the index of the repository. Of the repository's own git directory only its layout and its references are read.

set -u
export LC_ALL=C
for name in $(env | sed -n 's/^\(GIT_[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$name"; done
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0
# A repository may promise objects that a program would have to fetch.
export GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1 GIT_NO_REPLACE_OBJECTS=1

# What files are compared with: `remote` or `head`.
base=remote

command -v git >/dev/null 2>&1 || exit 3
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# Prints a property of the repository of $original.
original() { git --git-dir="$original" -c core.fsmonitor=false "$@" 2>/dev/null; }

# Sets up `ours`, the git directory for the repository in the folder $1, and `reference`, the tree that its files are compared
# with. Fails if there is none.
open_repository() {
    [ -e "$1/.git" ] && [ ! -L "$1/.git" ] || return 1
    original=$(git rev-parse --resolve-git-dir "$1/.git" 2>/dev/null) || return 1
    case $original in /*) ;; *) original=$1/$original ;; esac
    objects=$(cd "$original" && original rev-parse --git-path objects) || return 1
    index=$(cd "$original" && original rev-parse --git-path index) || return 1
    exclude=$(cd "$original" && original rev-parse --git-path info/exclude) || return 1
    case $objects in /*) ;; *) objects=$original/$objects ;; esac
    case $index in /*) ;; *) index=$original/$index ;; esac
    case $exclude in /*) ;; *) exclude=$original/$exclude ;; esac
    format=$(original rev-parse --show-object-format) || format=sha1
    ours=$scratch/git
    rm -rf "$ours" && mkdir -p "$ours/objects" "$ours/refs" "$ours/info" || return 1
    echo 'ref: refs/heads/none' >"$ours/HEAD"
    if [ "$format" = sha1 ]; then version=0 extension=; else version=1 extension="[extensions]
objectformat = $format"; fi
    printf '[core]\nrepositoryformatversion = %s\nbare = false\nquotePath = false\n%s\n' "$version" "$extension" >"$ours/config"
    # With its time: git compares the content of files that were changed in the same moment.
    if [ -f "$index" ]; then cp -p "$index" "$ours/index" || return 1; fi
    # The parts of a split index.
    for shared in "${index%/*}"/sharedindex.*; do
        if [ -f "$shared" ]; then cp "$shared" "$ours/" || return 1; fi
    done
    if [ -f "$exclude" ]; then cp "$exclude" "$ours/info/exclude" || return 1; fi
    reference=$(find_reference "$1") && [ -n "$reference" ]
}

# Runs git on the files of folder $1 with our git directory.
ours() {
    folder=$1
    shift
    (cd "$folder" && GIT_DIR=$ours GIT_WORK_TREE=$folder GIT_OBJECT_DIRECTORY=$objects \
        git --no-pager -c core.fsmonitor=false -c core.hooksPath=/dev/null "$@" 2>/dev/null)
}

# Prints the id of the commit that $1 refers to.
commit() { original rev-parse --verify --quiet "$1"; }

# Prints the tree that files are compared with: for `head`, the current commit; for `remote`, as in V0, the remote branch of the
# current one, where it left the remote's default branch, or that branch. The empty tree if there is none.
find_reference() {
    if [ "$base" = head ]; then
        commit HEAD || ours "$1" hash-object -t tree /dev/null
        return
    fi
    branch=$(original symbolic-ref --quiet --short HEAD) || branch=
    if [ -n "$branch" ] && found=$(commit "refs/remotes/origin/$branch"); then
        echo "$found"
        return
    fi
    if default=$(commit refs/remotes/origin/HEAD); then
        if head=$(commit HEAD) && found=$(ours "$1" merge-base "$head" "$default"); then echo "$found"; else echo "$default"; fi
        return
    fi
    ours "$1" hash-object -t tree /dev/null
}

# Calls `print_repository FOLDER NAME` for the folder $1, with the name `.`, and for those of its subfolders that have a repository.
for_each_repository() {
    print_repository "$1" .
    count=0
    for nested in "$1"/*/.git; do
        folder=${nested%/.git}
        if [ -L "$folder" ] || [ ! -e "$nested" ]; then continue; fi
        count=$((count + 1))
        if [ "$count" -gt 64 ]; then break; fi
        print_repository "$folder" "${folder##*/}"
    done
}

# Sets `above` to the nearest folder with a repository: $2, which is relative to the workspace $1, or one above it. Empty for the
# workspace. Fails if there is none.
find_above() {
    above=$2
    until [ -e "$1${above:+/$above}/.git" ]; do
        case $above in
            '') return 1 ;;
            */*) above=${above%/*} ;;
            *) above= ;;
        esac
    done
}
