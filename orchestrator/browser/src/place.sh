# What is done for the browser in the sandbox: $1 is which of it, $2 names its folder.
set -eu
umask 077
verb=$1
folder=${TMPDIR:-/tmp}/glovebox-browser-$2

# Others may write to the folder of temporary files, and make this one first.
[ "$verb" != begin ] || [ -e "$folder" ] || mkdir "$folder"
if [ ! -d "$folder" ]; then exit 0; fi
if [ -L "$folder" ] || [ ! -O "$folder" ]; then
    echo "$folder is somebody else's" >&2
    exit 1
fi
cd "$folder"
folder=$(pwd -P)

# Whether the process whose number is in the file $1 has $3 open as $2. A number may belong to another process by now.
holds() {
    [ -s "$1" ] && [ "$(readlink "/proc/$(cat "$1")/fd/$2" 2>/dev/null)" = "$folder/$3" ]
}

runs() {
    holds pid 3 in
}

# With all that came of it, if it leads a group of its own. Without `--`, which dash takes for a number here.
kill_group() {
    kill -9 "-$1" 2>/dev/null || kill -9 "$1" 2>/dev/null || :
}

# What came of the browser, whatever group it is in and whether or not the browser itself still runs.
descendants() {
    printf '%s\n' "HOME=$folder/profile" "--user-data-dir=$folder/profile" |
        grep -lsFf - /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d / -f 3
}

# Returns when nothing is left that could write to the folder.
end_browser() {
    if runs; then kill_group "$(cat pid)"; fi
    attempt=0
    while left=$(descendants) && [ -n "$left" ]; do
        attempt=$((attempt + 1))
        if [ "$attempt" -gt 100 ]; then
            echo "the browser does not end" >&2
            exit 1
        fi
        for process in $left; do kill -9 "$process" 2>/dev/null || :; done
        sleep 0.1
    done
}

case $verb in
begin) # $3: the action's id. Says whether it was begun before, and what there is of a browser.
    if grep -qxFe "$3" begun 2>/dev/null; then
        echo again
    else
        echo first
        { tail -n 99 begun 2>/dev/null || :; echo "$3"; } >begun.new
        mv begun.new begun
    fi
    if runs; then
        echo runs
    else
        if [ -s pid ]; then echo ended; else echo none; fi
        end_browser
        rm -rf profile in out pid
        mkfifo in out
    fi
    ;;
launch)
    # Its home is its own: nothing of it stays in the user's.
    unset XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY
    # Temporary files too, by a short name: it ends at once when the path of a socket there is longer than a socket's may be.
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
    echo "there is none of $PROGRAMS" >&2
    exit 127
    ;;
link) # Ends when the browser does.
    # One that a killed host has left would take the answers.
    if holds link 6 link; then kill_group "$(cat link)"; fi
    exec 5<&0 6>link
    echo $$ >&6
    cat <&5 >in &
    cat out || :
    kill $! 2>/dev/null || :
    ;;
kill)
    end_browser
    ;;
end)
    if holds link 6 link; then kill_group "$(cat link)"; fi
    end_browser
    cd /
    rm -rf "$folder"
    ;;
esac
