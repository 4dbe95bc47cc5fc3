# Lists all sandboxes of this owner.
for folder in "$root"/sandboxes/*; do
    is_ours && test -n "$mark" || continue;
    condition=ended; is_running && condition=running;
    reply sandbox "${folder##*/}" "$lifetime" "$created" "$condition";
done;
reply listed;
