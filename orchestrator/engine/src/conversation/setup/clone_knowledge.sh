# Never fails: most organizations have no such repository.
rm -rf -- "$folder"
command -v git >/dev/null 2>&1 || exit 0
export GIT_TERMINAL_PROMPT=0 GIT_SSH_COMMAND="${GIT_SSH_COMMAND:-ssh -o BatchMode=yes}"
if command -v timeout >/dev/null 2>&1; then set -- timeout 60 git; else set -- git; fi
"$@" clone --quiet --depth=1 -- "$url" "$folder" 2>/dev/null && exit 0
rm -rf -- "$folder"
echo "There is no repository $url, or it cannot be read."
