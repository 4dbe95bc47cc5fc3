# Tests roman.sh. Needs nothing but the shell.

failed=0

# expect NUMBER NUMERAL
expect() {
    found=$(sh ./roman.sh "$1")
    if [ "$found" = "$2" ]; then
        echo "ok      $1 = $2"
    else
        echo "FAILED  $1 = $2, but roman.sh says $found"
        failed=1
    fi
}

expect 1 I
expect 3 III
expect 4 IV
expect 9 IX
expect 14 XIV
expect 40 XL
expect 90 XC
expect 400 CD
expect 1954 MCMLIV
expect 2026 MMXXVI
expect 3999 MMMCMXCIX

exit "$failed"
