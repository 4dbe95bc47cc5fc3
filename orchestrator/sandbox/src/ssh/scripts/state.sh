# Prints the state of a sandbox and the path of its socket.
test -e "$folder" || { say none; exit 0; };
is_ours || { say foreign; exit 0; };
runs || { say ended; exit 0; };
socket_folder;
say running "${at:-$folder}/s";
