#!/bin/sh
# Sends a request until there is an answer, under one Idempotency-Key (see docs/clients.md), by curl. Sends what
# comes by stdin to a URL, and prints the status and the body of the answer:
#
#	sh send.sh URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json
#
# Not curl --retry: it does not wait for an operation that is running, and sends again what was answered with 500.

# send BODY-FILE KEY CURL-ARGUMENTS… prints the status and the body of the operation's answer. It fails if there is none: then go
# on with the same key. It tries 8 times, and more often while the operation runs on the server, for a minute.
send() (
  body=$1 key=$2 n=0 end=$(($(date +%s) + 60))
  shift 2
  dir=$(mktemp -d) || return
  trap 'rm -rf "$dir"' EXIT
  while :; do
    n=$((n + 1)) asked=0 code='' status=''
    if status=$(curl --silent --show-error --max-time 30 --header "Idempotency-Key: $key" --data-binary "@$body" \
      --dump-header "$dir/header" --output "$dir/answer" --write-out '%{http_code}' "$@" 2>"$dir/fault"); then
      field() { tr -d '\r' <"$dir/header" | sed -n "s/^$1: *//p" | tail -n 1; }
      code=$(field '[Ii]dempotency-[Rr]efused')
      asked=$(field '[Rr]etry-[Aa]fter')
      case $asked in
      [A-Z][a-z][a-z],\ [0-3][0-9]\ [A-Z][a-z][a-z]\ [0-9][0-9][0-9][0-9]\ [0-2][0-9]:[0-5][0-9]:[0-6][0-9]\ GMT)
        asked=$(date -d "$asked" +%s 2>/dev/null) && asked=$((asked - $(date +%s))) || asked=0
        ;;
      *[!0-9]*) asked=0 ;; # date understands more than HTTP allows
      *)
        asked=${asked#"${asked%%[!0]*}"} # 08 is no octal number
        case $asked in ??????*) asked=99999 ;; esac
        ;;
      esac
      case $code,$status in
      in_progress,*) n=$((n - 1)) ;;
      rate_limited,* | store_unavailable,* | shutting_down,* | unfinished,*) ;;
      *,408 | *,425 | *,429 | *,502 | *,503 | *,504) ;;
      *)
        printf '%s ' "$status"
        cat "$dir/answer" 2>/dev/null
        echo
        return 0
        ;;
      esac
    fi
    # At least a second, up to five, and up to three more by chance.
    pause=$((n < 5 ? n : 5))
    [ "${asked:-0}" -gt "$pause" ] && pause=$asked
    pause=$((pause + $(od -An -N1 -tu1 /dev/urandom) % 4))
    if [ "$n" -ge 8 ] || [ $(($(date +%s) + pause)) -gt "$end" ]; then
      echo "no answer: $status $code $(cat "$dir/fault"); go on with the key $key" >&2
      return 3
    fi
    sleep "$pause"
  done
)

main() {
  if [ -z "${1-}" ]; then
    echo 'usage: sh send.sh URL [IDEMPOTENCY-KEY [FIELD: VALUE]...] <body.json' >&2
    return 2
  fi
  url=$1 key=${2:-"\"$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')\""}
  shift
  [ $# -eq 0 ] || shift
  for field; do # each FIELD: VALUE becomes --header FIELD: VALUE
    set -- "$@" --header "$field"
    shift
  done
  file=$(mktemp) || return
  trap 'rm -f "$file" "$file.answer"' EXIT
  cat >"$file"
  send "$file" "$key" --globoff --path-as-is --header 'Content-Type: application/json' "$@" "$url" >"$file.answer" || return
  cat "$file.answer" # as it is: no variable holds every byte
  case $(head -c 1 "$file.answer") in 2) ;; *) return 1 ;; esac
}

case ${0##*/} in send.sh) main "$@" ;; esac # unless it is sourced
