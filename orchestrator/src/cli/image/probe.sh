first() { "$@" 2>/dev/null </dev/null | head -n 1; }
can_write() { [ -d "$1" ] && [ -w "$1" ] && echo yes || echo no; }
tell architecture "$(uname -m 2>/dev/null)"
if has bash; then tell shell "$(command -v bash)"; else tell shell "$(command -v sh)"; fi
[ -n "$BASH_VERSION" ] && tell shell_version "bash $BASH_VERSION"
[ -r /etc/os-release ] && tell system "$(. /etc/os-release; echo "$PRETTY_NAME")"
if version=$(getconf GNU_LIBC_VERSION 2>/dev/null) && [ -n "$version" ]; then tell libc "$version"
else
    for loader in /lib/ld-musl-* /lib64/ld-linux* /lib/ld-linux* /lib/*/ld-linux*; do
        [ -e "$loader" ] || continue
        case $loader in
        */ld-musl-*) tell libc "musl $("$loader" 2>&1 | sed -n 's/^Version //p')" ;;
        *) tell libc glibc ;;
        esac
        break
    done
fi
tell uid "$(id -u 2>/dev/null)"
tell user "$(id -un 2>/dev/null)"
tell home "$HOME"
tell workspace_writable "$(can_write .)"
tell home_writable "$(can_write "$HOME")"
tell tmp_writable "$(can_write "${TMPDIR:-/tmp}")"
has git && tell git "$(first git --version)"
for python in python3 python; do
    has $python || continue
    tell python "$(first $python -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')"
    tell python_interpreter "$(first $python -c 'import sys; print(sys.executable)')"
    break
done
has node && tell node "$(first node --version)"
for code in openvscode-server code-server; do
    has $code || continue
    tell vscode "$(command -v $code)"
    break
done
for manager in apt-get apk dnf yum zypper pacman; do
    has $manager || continue
    tell package_manager $manager
    break
done
tell end yes
