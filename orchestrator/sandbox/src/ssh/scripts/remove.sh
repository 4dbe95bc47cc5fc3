# Ends a sandbox and removes its folder, never a workspace that was given.
clear_place;
say removed;
