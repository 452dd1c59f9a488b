#!/bin/sh
# Two machines that are namespaces of this one: each has a name, an address and process ids of its
# own, and they reach each other over a link that can be cut.  Needs root.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

it "a job on two machines has the bits of one"
if ! command -v mpirun >/dev/null || [ ! -e "$B/hyper_mpi.so" ]; then
  skip "no mpirun, or no mpicc when hyper was built"
  exit 0
fi
N=hyper$$
remove_machines() { ip netns del "$N-1" 2>/dev/null; ip netns del "$N-2" 2>/dev/null; }
make_machines() {
  ip netns add "$N-1" && ip netns add "$N-2" &&
    ip -n "$N-1" link add net0 type veth peer name net0 netns "$N-2" || return 1
  for k in 1 2; do
    ip -n "$N-$k" link set lo up && ip -n "$N-$k" addr add 10.77.0.$k/24 dev net0 &&
      ip -n "$N-$k" link set net0 up || return 1
  done
}
if ! make_machines 2>why; then
  remove_machines
  skip "no network namespaces: $(tail -n 1 why)"
  exit 0
fi
trap 'code=$?; remove_machines; (exit $code); t_finish' EXIT

# What ssh does: runs a command on a machine.
cat >rsh <<END
#!/bin/sh
host=\$1
shift
own=--uts program=true
# by another file: what the launcher ends because it runs this program is on its own machine
[ "\${host##*.}" = 1 ] || own='--uts --pid --fork --mount-proc' program='mount --bind "$WORK/hyper" "$HYPER"'
exec ip netns exec "$N-\${host##*.}" unshare \$own sh -c "\$program; hostname machine\${host##*.}; \$*"
END
chmod +x rsh
cp "$HYPER" hyper
printf '10.77.0.%s slots=2\n' 1 2 >hosts
export OMPI_MCA_plm_rsh_agent="$WORK/rsh" OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 \
  OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
make_job job </dev/null
sed -i 's/^max_steps: 20/max_steps: 400/; s/^save_steps: 5/save_steps: 50/' job/job.yaml
verb="train job/job.yaml strategy=dp=2,tp=2,zero=1"
begin() {
  rm -rf several
  ./rsh 10.77.0.1 "exec $HYPER launch -n 4 --hostfile hosts --watchdog 8 $* -- $verb output_dir=several" >out 2>err </dev/null &
  launcher=$! # the programs between are replaced by it
  t_cmd="launch $*"
}
ended() {
  status=0
  { wait $launcher || status=$?; } 2>/dev/null
  no_orphan "$t_cmd"
}
wait_for() { while [ ! -e "$1" ] && kill -0 $launcher 2>/dev/null; do sleep 0.02; done; }

run $verb output_dir=alone
exit_is 0
begin
victim=$(pid_of 3)
told=$(tr '\0' '\n' <"/proc/$victim/environ" | sed -n 's/^HYPER_SUPERVISOR=//p')
case $told in 10.77.0.1:*) ;; *) fail "listens at ${told%%:*}" ;; esac
port=$(echo "$told" | cut -d: -f2) key=$(echo "$told" | cut -d: -f3)
# bound to this address (its bytes are the wrong way round), not to all
grep -q ": 01004D0A:$(printf %04X "$port") 00000000:0000 0A" "/proc/$launcher/net/tcp" ||
  fail "nobody listens at 10.77.0.1:$port"
[ ${#key} = 64 ] || fail "no key"
for p in /proc/[0-9]*/cmdline; do ! grep -qaF "$key" "$p" 2>/dev/null || fail "the key is in $p"; done
ended
exit_is 0
same_file alone/model.safetensors several/model.safetensors

it "a process that dies on the other machine is named, and the job goes on"
begin
victim=$(pid_of 3)
inner=$(sed -n 's/^NSpid:.*\t//p' "/proc/$victim/status") # as that machine calls it
wait_for several/checkpoint-50
kill -9 "$victim"
ended
exit_is 0
err_has "process 3 (machine2, pid $inner)"
err_has "continuing from several/checkpoint-"
same_file alone/model.safetensors several/model.safetensors

it "processes of the other machine end with a launcher that is killed"
begin
wait_for several/checkpoint-50
kill -9 $launcher
ended
exit_is 137
no_file several/checkpoint-400

it "a link that is cut is told, and its processes end when it is back"
begin --max-restarts 0
wait_for several/checkpoint-50
ip -n "$N-2" link set net0 down
{ wait $launcher; } 2>/dev/null
err_has "(machine2, pid "
err_has "has not been heard of"
err_has "cannot be reached, and may still run"
[ -n "$(job_processes)" ] || fail "what is behind the cut ended with nobody to tell it"
ip -n "$N-2" link set net0 up
no_orphan "after the link was cut"
