# Runs PROGRAM as nobody, in a tree made for it in memory: what is in there is all that it can read or change, and all
# that it sees are its own processes. Called in a mount and a process namespace of its own, with whose end everything
# goes. Arguments: ROOT (an empty folder, where the tree is mounted), KEY (what PROGRAM reads from its standard input),
# PROGRAM, its arguments.
set -eu
root=$1 key=$2 program=$3
shift 3

mount -t tmpfs -o nosuid,mode=755,size=512m tmpfs "$root"
mkdir "$root/bin" "$root/dev" "$root/dev/pts" "$root/proc" "$root/tmp" "$root/space"
# Not its own, so that it cannot shut itself out.
chmod 1777 "$root/tmp" "$root/space"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"

take() {
    mkdir -p "$root${1%/*}"
    cp -L "$1" "$root$1"
}
for shell in /bin/sh /bin/bash; do
    if [ -e "$shell" ]; then take "$shell"; fi
done
cp "$program" "$root/bin/"
for taken in "$root"/bin/*; do
    # What it is linked with: the paths in what ldd prints.
    for library in $(ldd "$taken" | grep -o '/[^ :]*'); do
        if [ ! -e "$root$library" ]; then take "$library"; fi
    done
done

# This shell stays the first process of its namespace: with it all others end, also when it is killed because who called
# it was. The kernel forgets to do that for a process that has become another user.
trap 'exit 143' TERM
# Without the right to gain rights, though nothing in there would give any.
setpriv --no-new-privs chroot --userspec=65534:65534 --groups= "$root" "/bin/${program##*/}" "$@" <<END &
$key
END
wait $!
