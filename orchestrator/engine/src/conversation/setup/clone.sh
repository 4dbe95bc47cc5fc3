if ! command -v git >/dev/null 2>&1; then
    echo "This sandbox has no git: choose an image that has it, or work in a folder that holds the repository."
    exit 127
fi
if [ -e "$folder/.git" ]; then
    echo "The folder $folder holds a repository already and is left as it is."
    exit 0
fi
if [ -e "$folder" ] || [ -L "$folder" ]; then
    echo "The workspace has something else at $folder: move it away, or work in another folder."
    exit 1
fi
# Clone to a temporary name, so that an interrupted clone is not taken for a complete one.
unfinished=.$folder.unfinished-clone
rm -rf -- "$unfinished"
# No user can answer a prompt.
export GIT_TERMINAL_PROMPT=0 GIT_SSH_COMMAND="${GIT_SSH_COMMAND:-ssh -o BatchMode=yes}"
if [ -n "$branch" ]; then set -- "--branch=$branch"; else set --; fi
git clone "$@" -- "$url" "$unfinished" && mv -- "$unfinished" "$folder" && exit 0
rm -rf -- "$unfinished"
if [ -n "$needs_network" ] && [ "$(ls /sys/class/net 2>/dev/null)" = lo ]; then
    echo "This sandbox has no network: give it one, or work in a folder that holds the repository."
fi
exit 1
