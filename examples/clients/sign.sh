#!/bin/sh
# Signs a request for a verifier of github.com/idem-go/idem (scheme v1), by openssl and curl. Sends
# what comes by stdin to a URL, and prints the status and the body of the answer:
#
#	IDEM_KEY_ID=demo IDEM_SECRET=0123456789abcdef0123456789abcdef sh sign.sh URL [IDEMPOTENCY-KEY] <body.json
#
# The URL is signed and sent as it is: what is not ASCII must be escaped. While openssl runs, other
# users of the machine may see its arguments, and the secret among them.

# sign KEY-ID SECRET METHOD URL BODY-FILE [IDEMPOTENCY-KEY [TIMESTAMP NONCE]] prints the header
# fields to be sent, once, with that JSON: another try needs another signature.
sign() (
  url=${4%%#*}
  authority=${url#*://} authority=${authority%%[/?]*}
  target=${url#*://"$authority"}
  path=${target%%\?*}
  query=${target#"$path"}
  host=$(printf %s "${authority##*@}" | tr '[:upper:]' '[:lower:]')
  case $url in http:*) host=${host%:80} ;; https:*) host=${host%:443} ;; esac # as curl does
  timestamp=${7:-$(date +%s)} nonce=${8:-$(openssl rand -hex 16)}
  names=content-type${6:+;idempotency-key}
  mac=$(printf %s "v1
$1
$3
$host
${path:-/}
${query#\?}
$timestamp
$nonce
$(openssl dgst -sha256 -r <"$5" | cut -c1-64)
$names
content-type:application/json${6:+
idempotency-key:$6}" | openssl dgst -sha256 -hmac "$2" -r | cut -c1-64)
  printf '%s\n' "X-Key-Id: $1" "X-Timestamp: $timestamp" "X-Nonce: $nonce" "X-Signed-Headers: $names" \
    "X-Signature: v1=$mac" 'Content-Type: application/json' ${6:+"Idempotency-Key: $6"}
)

main() {
  if [ -z "${1-}" ] || [ -z "${IDEM_KEY_ID-}" ] || [ -z "${IDEM_SECRET-}" ]; then
    echo 'usage: IDEM_KEY_ID=… IDEM_SECRET=… sh sign.sh URL [IDEMPOTENCY-KEY] <body.json' >&2
    return 2
  fi
  dir=$(mktemp -d) || return
  trap 'rm -rf "$dir"' EXIT
  cat >"$dir/body"
  status=$(sign "$IDEM_KEY_ID" "$IDEM_SECRET" POST "$1" "$dir/body" "${2-}" |
    curl --silent --show-error --max-time 30 --globoff --path-as-is --request POST --header @- \
      --data-binary "@$dir/body" --output "$dir/answer" --write-out '%{http_code}' "$1") || return
  printf '%s ' "$status"
  cat "$dir/answer"
  echo
  case $status in 2??) ;; *) return 1 ;; esac
}

case ${0##*/} in sign.sh) main "$@" ;; esac # unless it is sourced
