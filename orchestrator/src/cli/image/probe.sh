first() { "$@" 2>/dev/null </dev/null | head -n 1; }
can_write() { [ -d "$1" ] && [ -w "$1" ] && echo yes || echo no; }
report architecture "$(uname -m 2>/dev/null)"
if has bash; then report shell "$(command -v bash)"; else report shell "$(command -v sh)"; fi
[ -n "$BASH_VERSION" ] && report shell_version "bash $BASH_VERSION"
[ -r /etc/os-release ] && report system "$(. /etc/os-release; echo "$PRETTY_NAME")"
if version=$(getconf GNU_LIBC_VERSION 2>/dev/null) && [ -n "$version" ]; then report libc "$version"
else
    for loader in /lib/ld-musl-* /lib64/ld-linux* /lib/ld-linux* /lib/*/ld-linux*; do
        [ -e "$loader" ] || continue
        case $loader in
        */ld-musl-*) report libc "musl $("$loader" 2>&1 | sed -n 's/^Version //p')" ;;
        *) report libc glibc ;;
        esac
        break
    done
fi
report uid "$(id -u 2>/dev/null)"
report user "$(id -un 2>/dev/null)"
report home "$HOME"
report workspace_writable "$(can_write .)"
report home_writable "$(can_write "$HOME")"
report tmp_writable "$(can_write "${TMPDIR:-/tmp}")"
has git && report git "$(first git --version)"
for python in python3 python; do
    has $python || continue
    report python "$(first $python -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')"
    report python_interpreter "$(first $python -c 'import sys; print(sys.executable)')"
    break
done
has node && report node "$(first node --version)"
for code in openvscode-server code-server; do
    has $code || continue
    report vscode "$(command -v $code)"
    break
done
for manager in apt-get apk dnf yum zypper pacman; do
    has $manager || continue
    report package_manager $manager
    break
done
report end yes
