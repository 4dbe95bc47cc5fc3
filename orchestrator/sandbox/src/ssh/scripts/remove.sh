# Terminates a sandbox and removes its folder, but never a workspace of the user.
clear_place;
say removed;
