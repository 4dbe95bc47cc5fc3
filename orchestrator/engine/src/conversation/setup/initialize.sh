if ! command -v git >/dev/null 2>&1; then
    echo "This sandbox has no git: choose an image that has it, or turn init_git_in_empty_workspace off."
    exit 127
fi
if [ -e .git ]; then
    echo "The workspace is a repository already and is left as it is."
    exit 0
fi
git -c init.defaultBranch=main init
