#!/bin/sh
# Install the libraries of an image, as the Dockerfile does: install.sh cpu|gpu [EXTRA…]
# An extra NAME is a file locks/extra-NAME.txt. Packages are complete, and checked by their sums.
set -eu
runtime=$1
shift
install() {
    /opt/foretell/bin/pip install --no-deps --require-hashes --requirement "locks/$1.txt"
}
install "serve-$runtime"
for extra in "$@"; do
    if [ ! -f "locks/extra-$extra.txt" ]; then
        echo "EXTRAS: $extra is not one of" locks/extra-*.txt >&2
        exit 2
    fi
    install "extra-$extra"
done
