# Arguments: the server's file, its length, its SHA-256, the idle timeout, the lifetime, the time now, the workspace or
# nothing. The key is the first line of standard input: nothing but the server may read from it.
file=$root/bin/$1; length=$2; sum=${3#sha256:}; idle=$4; stays=$5; time=$6; work=$7;
case $home in /*) ;; *) say unwritable "$home"; exit 0;; esac;
need_file() {
    mkdir -p "$root/bin" && test -w "$root/bin" || { say unwritable "$root/bin"; exit 0; };
    find "$root/bin" -name "*.part-*" -mmin +60 -exec rm -f {} + 2>/dev/null;
    say missing "$(uname -s)" "$(uname -m)" "$file";
    exit 0;
};
test -x "$file" || need_file;
clear_place;
if test -n "$work"; then
    case $work in "~") work=$home;; "~/"*) work=$home/${work#"~/"};; esac;
    cd -P "$work" || { say workspace; exit 0; };
    test -r . && test -w . && test -x . || { echo "no right to write to it" >&2; say workspace; exit 0; };
    work=$PWD;
    mkdir -p "$folder" || { say unwritable "$folder"; exit 0; };
else
    mkdir -p "$folder/workspace" && cd -P "$folder/workspace" || { say unwritable "$folder"; exit 0; };
    work=$PWD;
fi;
cd /;
printf "%s\n" "$owner $stays $time" > "$folder/mark" || { say unwritable "$folder"; exit 0; };
socket=$folder/s;
if test "${#socket}" -gt 100; then
    at=$(mktemp -d /tmp/glovebox-XXXXXXXX) || { say unwritable /tmp; exit 0; };
    socket=$at/s;
    printf "%s\n" "$at" > "$folder/at" || { rm -rf "$at"; say unwritable "$folder"; exit 0; };
fi;
umask "$mask";
unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK SSH_ORIGINAL_COMMAND SSH_USER_AUTH;
said=$("$file" serve --socket "$socket" --working-dir "$work" --key-stdin --detach --idle-timeout "$idle" 2> "$folder/log");
code=$?; umask 077;
if test "$code" -gt 0; then
    is_intact "$file" "$length" "$sum" || { rm -f "$file"; need_file; };
    say failed "$code";
    tail -c 65536 "$folder/log";
    exit 0;
fi;
pid=${said#*:}; pid=${pid%%,*}; kernel=;
start_time_of "$pid";
{ read -r kernel < /proc/sys/kernel/random/boot_id; } 2>/dev/null;
printf "%s\n" "$pid $ticks $kernel" > "$folder/server" || { kill "$pid"; say unwritable "$folder"; exit 0; };
say started "$socket";
