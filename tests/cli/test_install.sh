# make install: a stranger's program finds the library through pkg-config, shared and static.
. "$(dirname "$0")/lib.sh"
CC=${CC:-gcc}
make_root() { # a make of its own, not a part of the one that runs the tests
  run_cmd env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -C "$ROOT" B="$B" CC="$CC" "$@"
}
export PKG_CONFIG_PATH="$WORK/usr/lib/pkgconfig"
write user.c <<'END'
#include <hyperparallel.h>
#include <stdio.h>
#include <string.h>
int main(void) {
  printf("%s %s\n", hp_version(), hp_status_name(HP_ERR_OOM));
  return strlen(hp_last_error()) ? 1 : 0;
}
END

it "links and runs a program against the build, without installing"
run_cmd $CC -o user-build user.c -I"$ROOT/include" -L"$B" -lhyperparallel -Wl,-rpath,"$B"
exit_is 0
run_cmd env -u LD_LIBRARY_PATH ./user-build
exit_is 0

it "installs header, libraries, command and pkg-config file"
make_root PREFIX="$WORK/usr" install
exit_is 0
cp out notes
out_has "cc prog.c \$(pkg-config --cflags --libs hyperparallel) -Wl,-rpath,$WORK/usr/lib"
out_has "export LD_LIBRARY_PATH=$WORK/usr/lib"
is_file usr/include/hyperparallel.h
is_file usr/lib/libhyperparallel.a
is_file usr/lib/libhyperparallel.so
is_file usr/lib/pkgconfig/hyperparallel.pc
is_file usr/bin/hyper
version=$(pkg-config --modversion hyperparallel)
[ "$(readlink -f usr/lib/libhyperparallel.so)" = "$WORK/usr/lib/libhyperparallel.so.$version" ] ||
  fail "libhyperparallel.so is not a link to the library of version $version"

it "links a program with the shared library"
run_cmd $CC -o user user.c $(pkg-config --cflags --libs hyperparallel)
exit_is 0
run_cmd env LD_LIBRARY_PATH="$WORK/usr/lib" ./user
exit_is 0
out_has "$version"

it "builds and runs a program by the line that make install says"
export CC
run_cmd sh -c "$(sed -n 's/^ *cc prog\.c/$CC user.c -o user-said/p' notes)"
exit_is 0
run_cmd env -u LD_LIBRARY_PATH ./user-said
exit_is 0

it "links a program with the static library"
run_cmd $CC -o user-static user.c $(pkg-config --cflags hyperparallel) usr/lib/libhyperparallel.a \
  $(pkg-config --static --libs hyperparallel | sed 's/-lhyperparallel//')
exit_is 0
run_cmd ./user-static
exit_is 0
out_has "$version"

it "stages under DESTDIR"
make_root DESTDIR="$WORK/stage" PREFIX=/opt/hp install
exit_is 0
is_file stage/opt/hp/bin/hyper
grep -qx 'prefix=/opt/hp' stage/opt/hp/lib/pkgconfig/hyperparallel.pc ||
  fail "the pkg-config file does not say prefix=/opt/hp"

it "uninstalls all of it"
make_root PREFIX="$WORK/usr" uninstall
exit_is 0
left=$(find usr ! -type d)
[ -z "$left" ] || fail "left behind: $left"

it "builds the plugin for several processes when an MPI library appears, and anew for another"
fake_mpicc() { # what it links with
  cat >mpicc <<END
#!/bin/sh
[ "\$1" = -show ] && { echo cc $1; exit; }
echo >>"$WORK/calls"
while [ "\$1" != -o ]; do shift; done
echo plugin >"\$2"
END
  chmod +x mpicc
}
fake_mpicc -lone
make_root -n MPICC="$WORK/nosuch" all
exit_is 0
out_lacks hyper_mpi.so
make_root -n MPICC="$WORK/mpicc" all
out_has "$WORK/mpicc"
plugin() { make_root B="$WORK/b" MPICC="$WORK/mpicc" "$WORK/b/hyper_mpi.so"; }
for library in -lone -lone -lother; do
  fake_mpicc $library
  plugin
  exit_is 0
done
is_file b/hyper_mpi.so
[ "$(wc -l <calls)" = 2 ] || fail "built $(wc -l <calls) times, not once for each of two libraries"
