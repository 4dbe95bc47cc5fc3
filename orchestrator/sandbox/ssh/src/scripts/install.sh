# Arguments: the server's file, its length, its SHA-256, the partial file, and the source of its bytes: standard input
# (stdin), or a previous upload (file). The last step is a rename, so that the file is never incomplete.
file=$root/bin/$1; part=$root/bin/$4;
if test "$5" = stdin; then
    cat > "$part" || { rm -f "$part"; reply unwritable "$root/bin"; exit 0; };
fi;
is_intact "$part" "$2" "${3#sha256:}" || { rm -f "$part"; reply damaged; exit 0; };
chmod 700 "$part" && mv -f "$part" "$file" || { rm -f "$part"; reply unwritable "$root/bin"; exit 0; };
reply installed;
