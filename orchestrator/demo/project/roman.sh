# Prints a number in Roman numerals. Needs nothing but the shell.

number=$1
numeral=

# add VALUE LETTERS: writes the letters as often as the value fits.
add() {
    while [ "$number" -ge "$1" ]; do
        numeral=$numeral$2
        number=$((number - $1))
    done
}

add 1000 M
add 500 D
add 100 C
add 50 L
add 10 X
add 5 V
add 1 I

echo "$numeral"
