# Prints the state of a sandbox and the path of its socket.
test -e "$folder" || { reply none; exit 0; };
is_ours || { reply foreign; exit 0; };
is_running || { reply ended; exit 0; };
socket_folder;
reply running "${at:-$folder}/s";
