# What every script begins with. Arguments: the owner's mark, the sandbox (or nothing), then the script's own.
# It is sent as one line inside single quotes, through whatever login shell there is: no single quote, no exclamation
# mark, no line that needs its end; comments stand on lines of their own. Forks cost a start its time: built-ins do.
mask=$(umask); umask 077;
owner=$1; id=$2; shift 2;
home=${HOME:-/nonexistent}; root=$home/.glovebox; folder=$root/sandboxes/$id;
say() { printf "\nglovebox %s\n" "$*"; };
# When a process began, into $ticks: nothing when it has ended. The name before the bracket may hold anything.
begin_of() {
    ticks=;
    { read -r stat < "/proc/$1/stat"; } 2>/dev/null || return 0;
    set -- ${stat##*")"};
    test "$1" = Z || ticks=${20};
};
# Whether the server on record runs: the same process, not another one that has its id by now.
runs() {
    pid=; begun=; kernel=; now=;
    { read -r pid begun kernel < "$folder/server"; } 2>/dev/null;
    test -n "$begun" || return 1;
    { read -r now < /proc/sys/kernel/random/boot_id; } 2>/dev/null;
    test "$kernel" = "$now" || return 1;
    begin_of "$pid"; test "$ticks" = "$begun";
};
# Everything below the process $pid, into $found.
descendants() {
    tree=" $pid "; found=; grew=yes;
    while test -n "$grew"; do
        grew=;
        for file in /proc/[0-9]*/stat; do
            { read -r stat < "$file"; } 2>/dev/null || continue;
            process=${file#/proc/}; process=${process%/stat};
            set -- ${stat##*")"};
            case $tree in *" $process "*) continue;; esac;
            case $tree in *" $2 "*) tree="$tree$process "; found="$found $process:${20}"; grew=yes;; esac;
        done;
    done;
};
wait_for_end() {
    n=0;
    while test "$n" -lt "$1"; do
        begin_of "$pid"; test "$ticks" = "$begun" || return 0;
        sleep 0.02 2>/dev/null || { sleep 1; n=$((n + 49)); };
        n=$((n + 1));
    done;
    return 1;
};
# Its own supervisor needs up to 3 s for what will not end.
end_server() {
    runs || return 0;
    descendants;
    kill -TERM "$pid" 2>/dev/null;
    wait_for_end 200 || { kill -KILL "$pid" 2>/dev/null; wait_for_end 100 || return 1; };
    for process in $found; do
        begin_of "${process%:*}";
        test "$ticks" = "${process#*:}" && kill -KILL "${process%:*}" 2>/dev/null;
    done;
    return 0;
};
# One that bears no mark was begun and not finished: it is anybody's to remove.
is_ours() {
    mark=; lifetime=; created=;
    { read -r mark lifetime created < "$folder/mark"; } 2>/dev/null;
    test -z "$mark" || test "$mark" = "$owner";
};
# The folder of the socket, when the path below the home folder is too long for one.
socket_folder() {
    at=; { read -r at < "$folder/at"; } 2>/dev/null;
    case $at in /tmp/glovebox-*/*) at=;; /tmp/glovebox-?*) ;; *) at=;; esac;
};
# Tools leave read-only folders behind.
remove_folder() {
    socket_folder; test -z "$at" || rm -rf "$at";
    rm -rf "$folder" 2>/dev/null || { chmod -R u+rwX "$folder"; rm -rf "$folder"; };
};
clear_place() {
    test -e "$folder" || return 0;
    is_ours || { say foreign; exit 0; };
    end_server || { say stuck "$pid"; exit 0; };
    remove_folder || { say left "$folder"; exit 0; };
};
# Whether the file $1 has $2 bytes, and the SHA-256 $3 where there is a program to tell.
is_intact() {
    test "$(wc -c < "$1")" -eq "$2" || return 1;
    sum=$(sha256sum < "$1" 2>/dev/null) || return 0;
    test "${sum%% *}" = "$3";
};
