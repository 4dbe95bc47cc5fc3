# Steps of the browser in the sandbox. $1 is the step, $2 is part of the folder's name.
set -eu
umask 077
step=$1
folder=${TMPDIR:-/tmp}/glovebox-browser-$2

# Other users may write to the folder for temporary files, and create this one first.
[ "$step" != start_action ] || [ -e "$folder" ] || mkdir "$folder"
if [ ! -d "$folder" ]; then exit 0; fi
if [ -L "$folder" ] || [ ! -O "$folder" ]; then
    echo "$folder belongs to another user" >&2
    exit 1
fi
cd "$folder"
folder=$(pwd -P)

# Whether the process whose id is in the file $1 has $3 open as $2. The id may have been reused.
has_open() {
    [ -s "$1" ] && [ "$(readlink "/proc/$(cat "$1")/fd/$2" 2>/dev/null)" = "$folder/$3" ]
}

is_running() {
    has_open pid 3 in
}

# Kills the process group, if the process leads one. Without `--`, which dash parses as an id here.
kill_group() {
    kill -9 "-$1" 2>/dev/null || kill -9 "$1" 2>/dev/null || :
}

# Prints the processes of the browser in all groups, whether or not the browser itself still runs.
browser_processes() {
    printf '%s\n' "HOME=$folder/profile" "--user-data-dir=$folder/profile" |
        grep -lsFf - /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d / -f 3
}

# Returns when no process is left that could write to the folder.
kill_browser() {
    if is_running; then kill_group "$(cat pid)"; fi
    attempt=0
    while left=$(browser_processes) && [ -n "$left" ]; do
        attempt=$((attempt + 1))
        if [ "$attempt" -gt 100 ]; then
            echo "the browser does not exit" >&2
            exit 1
        fi
        for process in $left; do kill -9 "$process" 2>/dev/null || :; done
        sleep 0.1
    done
}

# A link of a killed host would consume the responses.
kill_link() {
    if has_open link 6 link; then kill_group "$(cat link)"; fi
}

case $step in
start_action) # $3: the action's id. Prints whether it was started before, and the state of the browser.
    if grep -qxFe "$3" started 2>/dev/null; then
        echo repeated
    else
        echo new
        { tail -n 99 started 2>/dev/null || :; echo "$3"; } >started.new
        mv started.new started
    fi
    if is_running; then
        echo running
    else
        if [ -s pid ]; then echo exited; else echo none; fi
        kill_browser
        rm -rf profile in out pid
        mkfifo in out
    fi
    ;;
launch)
    # A separate home: no file remains in that of the user.
    unset XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY
    # Also for temporary files. A short path: the browser exits if the path of a socket in it is too long.
    export HOME="$folder/profile" TMPDIR=/proc/self/cwd
    mkdir -p profile
    shift 2
    for name in $PROGRAMS; do
        if command -v "$name" >/dev/null; then
            echo $$ >pid
            cd profile
            exec "$name" --user-data-dir="$folder/profile" "$@" 3<>../in 4<>../out </dev/null >/dev/null
        fi
    done
    echo "none of $PROGRAMS is installed" >&2
    exit 127
    ;;
link) # Ends when the browser exits.
    kill_link
    exec 5<&0 6>link
    echo $$ >&6
    cat <&5 >in &
    cat out || :
    kill $! 2>/dev/null || :
    ;;
kill)
    kill_browser
    ;;
remove)
    kill_link
    kill_browser
    cd /
    rm -rf "$folder"
    ;;
esac
