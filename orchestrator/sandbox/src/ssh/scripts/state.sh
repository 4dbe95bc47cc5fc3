# Whether a sandbox runs, and where its socket is.
test -e "$folder" || { say none; exit 0; };
is_ours || { say foreign; exit 0; };
runs || { say ended; exit 0; };
socket_folder;
say running "${at:-$folder}/s";
