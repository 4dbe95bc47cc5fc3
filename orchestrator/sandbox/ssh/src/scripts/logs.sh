# Prints the end of the startup log of a server.
reply log;
test -e "$folder/log" && is_ours && tail -c 65536 "$folder/log";
exit 0;
