script=
for candidate in .glovebox/pre-commit.sh .openhands/pre-commit.sh; do
    if [ -f "$candidate" ]; then
        script=$candidate
        break
    fi
done
if [ -z "$script" ]; then
    echo "There is no script for commits."
    exit 0
fi
if ! command -v git >/dev/null 2>&1; then
    echo "This sandbox has no git, so $script is not installed as a hook."
    exit 127
fi
if ! common=$(git rev-parse --git-common-dir); then
    echo "This folder is no repository, so $script is not installed as a hook."
    exit 1
fi
# Other repositories may use the configured hooks folder too.
if elsewhere=$(git config core.hooksPath); then
    echo "core.hooksPath is $elsewhere, so $script is not installed as a hook."
    exit 1
fi
hook=$common/hooks/pre-commit
mkdir -p -- "$common/hooks" || exit 1
if [ -e "$hook" ] && ! grep -q -e 'Installed by Glovebox' -e 'installed by OpenHands' "$hook"; then
    if [ -e "$hook.local" ]; then
        echo "Both $hook and $hook.local are in use, so $script is not installed as a hook."
        exit 1
    fi
    mv -- "$hook" "$hook.local" || exit 1
fi
cat >"$hook.new" <<'HOOK' || exit 1
#!/bin/sh
# Installed by Glovebox: runs the previous hook, then the repository's own script.
if [ -x "$0.local" ]; then "$0.local" "$@" || exit; fi
# Outside of a sandbox, the script would run with the rights of the user who commits.
if [ -z "${GLOVEBOX_SESSION-}" ]; then exit 0; fi
for script in .glovebox/pre-commit.sh .openhands/pre-commit.sh; do
    [ -f "$script" ] || continue
    if [ -x "$script" ]; then exec "./$script"; fi
    if command -v bash >/dev/null 2>&1; then exec bash "$script"; fi
    exec sh "$script"
done
HOOK
chmod 755 "$hook.new" && mv -- "$hook.new" "$hook" && echo "$script is called before each commit."
