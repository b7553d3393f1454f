#!/bin/sh
# Makes the certificates anew; they are committed so that the tests need no openssl.
# Valid for a hundred years, for loopback only, and worthless outside these tests: the keys are public.
set -eu
cd "$(dirname "$0")"
new_key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
for authority in ca stranger; do
    openssl req -x509 $new_key -keyout "$authority.key" -out "$authority.pem" -days 36500 -subj "/CN=mainspring test $authority"
done
for name in server client; do
    openssl req $new_key -keyout "$name.key" -out "$name.csr" -subj "/CN=mainspring test $name"
    echo "subjectAltName = DNS:localhost, IP:127.0.0.1, IP:::1" > "$name.ext"
    openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -out "$name.pem" -days 36500 -extfile "$name.ext"
done
rm -f ./*.csr ./*.ext ./*.srl ca.key stranger.key
