# Common part of all scripts. Arguments: the owner, the sandbox id (or nothing), then those of the script itself.
# It is sent as one line in single quotes through any login shell: no single quotes, no exclamation
# marks, no line that needs its newline, comments on lines of their own. Built-ins are preferred: each fork delays a start.
mask=$(umask); umask 077;
owner=$1; id=$2; shift 2;
home=${HOME:-/nonexistent}; root=$home/.glovebox; folder=$root/sandboxes/$id;
reply() { printf "\nglovebox %s\n" "$*"; };
# Sets $ticks to the start time of a process, empty if it has exited. The name in parentheses may contain anything.
start_time_of() {
    ticks=;
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 0;
    set -- ${stat##*")"};
    test "$1" = Z || ticks=${20};
};
# Whether the recorded server runs. Compares start time and boot id, since process ids are reused.
is_running() {
    pid=; started=; kernel=; now=;
    { read -r pid started kernel < "$folder/server"; } 2>/dev/null;
    test -n "$started" || return 1;
    { read -r now < /proc/sys/kernel/random/boot_id; } 2>/dev/null;
    test "$kernel" = "$now" || return 1;
    start_time_of "$pid"; test "$ticks" = "$started";
};
# Sets $found to all descendants of $pid.
descendants() {
    tree=" $pid "; found=; has_grown=yes;
    while test -n "$has_grown"; do
        has_grown=;
        for file in /proc/[0-9]*/stat; do
            { read -r stat < "$file"; } 2>/dev/null || continue;
            process=${file#/proc/}; process=${process%/stat};
            set -- ${stat##*")"};
            case $tree in *" $process "*) continue;; esac;
            case $tree in *" $2 "*) tree="$tree$process "; found="$found $process:${20}"; has_grown=yes;; esac;
        done;
    done;
};
wait_for_exit() {
    n=0;
    while test "$n" -lt "$1"; do
        start_time_of "$pid"; test "$ticks" = "$started" || return 0;
        sleep 0.02 2>/dev/null || { sleep 1; n=$((n + 49)); };
        n=$((n + 1));
    done;
    return 1;
};
# The server itself needs up to 3 s to terminate its children.
terminate_server() {
    is_running || return 0;
    descendants;
    kill -TERM "$pid" 2>/dev/null;
    wait_for_exit 200 || { kill -KILL "$pid" 2>/dev/null; wait_for_exit 100 || return 1; };
    for process in $found; do
        start_time_of "${process%:*}";
        test "$ticks" = "${process#*:}" && kill -KILL "${process%:*}" 2>/dev/null;
    done;
    return 0;
};
# A folder without a mark belongs to an unfinished start, which any owner may remove.
is_ours() {
    mark=; lifetime=; created=;
    { read -r mark lifetime created < "$folder/mark"; } 2>/dev/null;
    test -z "$mark" || test "$mark" = "$owner";
};
# Sets $at to the folder of the socket if the path below the home folder is too long for one.
socket_folder() {
    at=; { read -r at < "$folder/at"; } 2>/dev/null;
    case $at in /tmp/glovebox-*/*) at=;; /tmp/glovebox-?*) ;; *) at=;; esac;
};
# Some tools leave read-only folders behind, such as Go.
remove_folder() {
    socket_folder; test -z "$at" || rm -rf "$at";
    rm -rf "$folder" 2>/dev/null || { chmod -R u+rwX "$folder"; rm -rf "$folder"; };
};
remove_existing() {
    test -e "$folder" || return 0;
    is_ours || { reply foreign; exit 0; };
    terminate_server || { reply stuck "$pid"; exit 0; };
    remove_folder || { reply left "$folder"; exit 0; };
};
# Whether the file $1 has $2 bytes and, if sha256sum is installed, the SHA-256 $3.
is_intact() {
    test "$(wc -c < "$1")" -eq "$2" || return 1;
    sum=$(sha256sum < "$1" 2>/dev/null) || return 0;
    test "${sum%% *}" = "$3";
};
