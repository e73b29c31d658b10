#!/bin/bash
# Two "hosts" on one machine, network namespaces with an address each and a cable between them: a
# story by two processes of MPI must be the story of one, and where one side is killed or stopped,
# or the cable is pulled, the other must end and say where it was. Needs root and mpirun.
#     bench/two_hosts.sh BUILD_DIR
# Ends with 77 where it cannot be done here.
set -u
tools=$(realpath "$1")/tools
root=$(realpath "$(dirname "$0")/..")
a=leq-a-$$ b=leq-b-$$
net=10.77.$(($$ % 200))
work=$(mktemp -d)

skip() { echo "two hosts: NOT RUN: $1"; rm -rf "$work"; exit 77; }
[ "$(id -u)" = 0 ] || skip "needs root"
command -v ip >/dev/null && command -v mpirun >/dev/null || skip "needs ip (iproute2) and mpirun"
[ -e "$tools/../libleq-mpi.so" ] || skip "this build has no MPI"
ip netns add "$a" 2>/dev/null || skip "no network namespaces here"

clean() {
  for space in "$a" "$b"; do
    for id in $(ip netns pids "$space" 2>/dev/null); do kill -9 "$id" 2>/dev/null; done
    ip netns del "$space" 2>/dev/null
  done
  rm -rf "$work"
}
trap clean EXIT
fail() { echo "two hosts: FAILED: $1"; exit 1; }

ip netns add "$b" && ip link add "veth-a$$" netns "$a" type veth peer name "veth-b$$" netns "$b" ||
  skip "no virtual cables here"
ip -n "$a" addr add "$net.1/24" dev "veth-a$$"
ip -n "$b" addr add "$net.2/24" dev "veth-b$$"
for end in a b; do
  space=${!end}
  ip -n "$space" link set lo up
  ip -n "$space" link set "veth-$end$$" up
done

# mpirun begins the other host's processes by this, in place of ssh.
cat > "$work/agent" <<END
#!/bin/bash
shift
exec ip netns exec $b unshare --uts sh -c "hostname $b; \$*"
END
chmod +x "$work/agent"

# run SECONDS WORDS...: leq-run on both hosts, a rank each.
run() {
  local limit=$1
  shift
  timeout -k 5 "$limit" ip netns exec "$a" unshare --uts sh -c "hostname $a; exec \"\$@\"" sh \
    mpirun --allow-run-as-root --host "$net.1:1,$net.2:1" -np 2 \
    --mca plm_rsh_agent "$work/agent" --mca orte_tmpdir_base "$work" \
    --mca btl tcp,self --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" \
    --mca orte_keep_fqdn_hostnames 1 "$tools/leq-run" --tp 2 "$@" < /dev/null
}
# The id of the rank on host b, once stories have come.
wait_for_rank() {
  for _ in $(seq 100); do
    for id in $(ip netns pids "$b" 2>/dev/null); do
      [ "$(cat "/proc/$id/comm" 2>/dev/null)" = leq-run ] && [ -s "$work/long.out" ] && echo "$id" && return
    done
    sleep 0.2
  done
}

model=$work/story.leq
"$tools/leq-quantize" "$root/examples/storyteller" -o "$model" --type int8 --method rtn 2> "$work/log" ||
  fail "no model: $(cat "$work/log")"
words=(-m "$model" --raw -p "Once upon a time" -s 7 -n 60 -t 1)
"$tools/leq-run" "${words[@]}" --receipt "$work/one.json" > "$work/one" 2> "$work/log" < /dev/null ||
  fail "one process: $(cat "$work/log")"
run 60 "${words[@]}" --receipt "$work/two.json" > "$work/two" 2> "$work/log" ||
  fail "two hosts: $(cat "$work/log")"
cmp -s <(tr -d '\r\n' < "$work/one") <(tr -d '\r\n' < "$work/two") || fail "another story: $(cat "$work/two")"
cmp -s "$work/one.json" "$work/two.json" || fail "other logits"
echo "two hosts: the same story, the same digests of logits"

rank_on_a() {
  for id_on_a in $(ip netns pids "$a" 2>/dev/null); do
    [ "$(cat "/proc/$id_on_a/comm" 2>/dev/null)" = leq-run ] && return 0
  done
  return 1
}

# Many stories after each other, so that there is time.
yes "Once upon a time" | head -3000 > "$work/prompts"
endless=(-m "$model" -f "$work/prompts" -np 2 -n 80 -s 7 -t 1 -c 1024)

# trouble NAME COMMAND WORDS: what happens to the other side, and what someone must say.
trouble() {
  local name=$1 command=$2 want=$3
  : > "$work/long.out"
  run 60 "${endless[@]}" > "$work/long.out" 2> "$work/long.err" &
  local job=$!
  local id
  id=$(wait_for_rank)
  [ -n "$id" ] || fail "$name: no rank on the other host: $(cat "$work/long.err")"
  local began=$SECONDS status=none
  eval "$command"
  while rank_on_a && [ $((SECONDS - began)) -lt 50 ]; do sleep 0.5; done
  local took=$((SECONDS - began))
  # mpirun looks for a host that is cut off for a minute.
  if [ "$command" = "$cut" ]; then
    for left in $(ip netns pids "$a"); do kill -9 "$left" 2>/dev/null; done
  fi
  wait "$job"
  status=$?
  [ "$status" != 0 ] || fail "$name: ended as if nothing had been"
  [ "$took" -lt 50 ] || fail "$name: still there after 50 s: $(cat "$work/long.err")"
  grep -q "$want" "$work/long.err" "$work/long.out" ||
    fail "$name: expected '$want' in: $(cat "$work/long.err")"
  echo "two hosts: $name: the other rank ended after $took s: $(grep -h -o "$want.*" "$work/long.err" "$work/long.out" | head -1)"
}

cut='ip -n "$b" link set "veth-b$$" down'
trouble "killed" 'kill -9 $id' "rank 0 of 2: step [0-9]*: "
trouble "stopped" 'kill -STOP $id' "rank 0 of 2: step [0-9]*: waits in the .* for rank 1"
trouble "cable pulled" "$cut" "rank 0 of 2: step [0-9]*: waits in the .* for rank 1"
