# Terminates a sandbox and removes its folder, but never a workspace of the user.
remove_existing;
reply removed;
