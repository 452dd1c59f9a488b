# tools/bootstrap on machines that are made up: a folder of commands is all that PATH holds.
. "$(dirname "$0")/lib.sh"

mkdir bin
for tool in sh env echo tr mktemp rm tail grep cat sed; do
  ln -s "$(command -v $tool)" bin/ 2>/dev/null
done
fake() { # NAME: standard input becomes that command
  { echo '#!/bin/sh'; cat; } > "bin/$1"
  chmod +x "bin/$1"
}
fake gcc </dev/null
fake make </dev/null
fake clang </dev/null
echo 'echo x86_64' | fake uname
echo 'echo 0' | fake id
# a package is there once its name is in the file `have`
fake pkg-config <<'END'
[ "$1" = --exists ] && shift
for p; do grep -qx "$p" "$HAVE" || exit 1; done
END
# installing libX-dev brings the .pc files below
fake apt-get <<'END'
echo "$@" >> "$CALLS"
[ "$1" = install ] || { echo updated >> "$HAVE.lists"; exit 0; }
[ -e "$HAVE.lists" ] || { echo "E: Unable to locate package"; exit 100; }
[ ! -e "$HAVE.broken" ] || { echo "E: no network"; exit 100; }
case " $* " in *" libjansson-dev "*) echo jansson >> "$HAVE" ;; esac
case " $* " in *" libcairo2-dev "*) echo cairo >> "$HAVE" ;; esac
END
HAVE=$WORK/have CALLS=$WORK/calls
export HAVE CALLS
machine() { # what it has
  rm -f have.lists have.broken calls
  : > calls
  printf '%s\n' "$@" > have
}
boot() { run_cmd env PATH="$WORK/bin" sh "$ROOT/tools/bootstrap" "$@"; }
most='yaml-0.1 libpcre2-8 libutf8proc libxxhash'

it "does and says nothing when all is there"
machine $most jansson cairo
boot
exit_is 0
out_is ""
[ ! -s calls ] || fail "it called apt-get"
boot --check
exit_is 0

it "names what is missing, and installs nothing, with --check"
machine $most
boot --check
exit_is 1
err_has "missing: libjansson-dev libcairo2-dev"
err_has "tools/bootstrap"
[ ! -s calls ] || fail "it called apt-get"

it "installs what is missing, fetching the package lists when they are old"
machine $most
boot
exit_is 0
out_has "installing libjansson-dev libcairo2-dev"
grep -q '^update' calls || fail "no apt-get update"
boot
exit_is 0
out_is ""

it "does not fetch the package lists when it can do without"
machine $most cairo
: > have.lists
boot
exit_is 0
! grep -q '^update' calls || fail "apt-get update without need"

it "shows what apt said when that fails"
machine $most
: > have.broken
boot
exit_is 1
err_has "no network"
err_has "could not install: libjansson-dev libcairo2-dev"

it "uses sudo when it is not root, and says so when there is none"
echo 'echo 1000' | fake id
machine $most cairo
boot
exit_is 1
err_has "run this as root: apt-get install libjansson-dev"
printf 'echo sudo >> "$CALLS"\nexec "$@"\n' | fake sudo
boot
exit_is 0
grep -q '^sudo' calls || fail "sudo was not used"
echo 'echo 0' | fake id

it "says what to do on a system without apt"
machine $most cairo
mv bin/apt-get apt-get
boot
exit_is 1
err_has "missing: libjansson-dev"
err_has "no apt-get"
mv apt-get bin/

it "refuses words that it does not know"
boot --frobnicate
exit_is 2
err_has "usage"
