# Lists all sandboxes of this owner.
for folder in "$root"/sandboxes/*; do
    is_ours && test -n "$mark" || continue;
    condition=ended; runs && condition=running;
    say sandbox "${folder##*/}" "$lifetime" "$created" "$condition";
done;
say listed;
