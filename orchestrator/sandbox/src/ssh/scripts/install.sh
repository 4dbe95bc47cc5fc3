# Arguments: the server's file, its length, its SHA-256, the uploaded part, and how the bytes come: with this script
# (stdin), or they are there already (file). The last step is a rename: what has the name is whole.
file=$root/bin/$1; part=$root/bin/$4;
if test "$5" = stdin; then
    cat > "$part" || { rm -f "$part"; say unwritable "$root/bin"; exit 0; };
fi;
is_intact "$part" "$2" "${3#sha256:}" || { rm -f "$part"; say damaged; exit 0; };
chmod 700 "$part" && mv -f "$part" "$file" || { rm -f "$part"; say unwritable "$root/bin"; exit 0; };
say installed;
