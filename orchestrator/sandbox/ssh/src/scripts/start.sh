# Arguments: the server's file, its length, its SHA-256, the idle timeout, the lifetime, the current time, the workspace or
# nothing. The key is the first line of standard input, which only the server may read.
file=$root/bin/$1; length=$2; sum=${3#sha256:}; idle=$4; new_lifetime=$5; time=$6; work=$7;
case $home in /*) ;; *) reply unwritable "$home"; exit 0;; esac;
request_file() {
    mkdir -p "$root/bin" && test -w "$root/bin" || { reply unwritable "$root/bin"; exit 0; };
    find "$root/bin" -name "*.part-*" -mmin +60 -exec rm -f {} + 2>/dev/null;
    reply missing "$(uname -s)" "$(uname -m)" "$file";
    exit 0;
};
test -x "$file" || {
    chmod u+x "$file" 2>/dev/null || request_file;
    test -x "$file" || { reply noexec "$root/bin"; exit 0; };
};
remove_existing;
if test -n "$work"; then
    case $work in "~") work=$home;; "~/"*) work=$home/${work#"~/"};; esac;
    cd -P "$work" || { reply workspace; exit 0; };
    test -r . && test -w . && test -x . || { echo "it is not writable" >&2; reply workspace; exit 0; };
    work=$PWD;
    mkdir -p "$folder" || { reply unwritable "$folder"; exit 0; };
else
    mkdir -p "$folder/workspace" && cd -P "$folder/workspace" || { reply unwritable "$folder"; exit 0; };
    work=$PWD;
fi;
cd /;
printf "%s\n" "$owner $new_lifetime $time" > "$folder/mark" || { reply unwritable "$folder"; exit 0; };
socket=$folder/s;
if test "${#socket}" -gt 100; then
    at=$(mktemp -d /tmp/glovebox-XXXXXXXX) || { reply unwritable /tmp; exit 0; };
    socket=$at/s;
    printf "%s\n" "$at" > "$folder/at" || { rm -rf "$at"; reply unwritable "$folder"; exit 0; };
fi;
umask "$mask";
unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK SSH_ORIGINAL_COMMAND SSH_USER_AUTH;
output=$("$file" serve --socket "$socket" --working-dir "$work" --key-stdin --detach --idle-timeout "$idle" 2> "$folder/log");
code=$?; umask 077;
if test "$code" -gt 0; then
    is_intact "$file" "$length" "$sum" || { rm -f "$file"; request_file; };
    reply failed "$code";
    tail -c 65536 "$folder/log";
    exit 0;
fi;
pid=${output#*:}; pid=${pid%%,*}; kernel=;
start_time_of "$pid";
{ read -r kernel < /proc/sys/kernel/random/boot_id; } 2>/dev/null;
printf "%s\n" "$pid $ticks $kernel" > "$folder/server" || { kill "$pid"; reply unwritable "$folder"; exit 0; };
reply started "$socket";
