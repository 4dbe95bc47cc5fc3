if [ -f .glovebox/setup.sh ]; then . ./.glovebox/setup.sh </dev/null
elif [ -f .openhands/setup.sh ]; then . ./.openhands/setup.sh </dev/null
else echo "There is no set-up script."
fi
