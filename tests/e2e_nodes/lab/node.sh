#!/bin/bash
# node.sh up N | kill N | cut N | join N | rm N     (env as in env.sh)
#   up: start (or start again, with the disk it had)   kill: power cut (SIGKILL to the node's init)
#   cut / join: unplug / plug the node's network cable   rm: kill and forget its disk and cgroups
set -euo pipefail
. "$(dirname "$0")/env.sh"
export PATH=$BIN:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
V=$1; N=$2; NS=$PREFIX$N; D=$L/node$N; CG=$PREFIX$N
v1() { [ ! -e /sys/fs/cgroup/cgroup.controllers ]; }
case $V in
up)
  alive "$D/init.pid" && exit 0
  mkdir -p "$D"/{containerd,state,kubelet,cni,etc,log} "$STORAGE"
  if [ ! -e /run/netns/$NS ]; then
    ip netns add $NS; ip -n $NS link set lo up
    ip -n ${PREFIX}0 link add v$N type veth peer name eth0 netns $NS
    ip -n ${PREFIX}0 link set v$N master br0 up
    ip -n $NS addr add $NET.0.1$N/24 dev eth0; ip -n $NS link set eth0 up
    ip -n $NS route add default via $NET.0.1
    ip -n ${PREFIX}0 route replace $NET.$N.0/24 via $NET.0.1$N
    nsenter --net=/run/netns/${PREFIX}0 -- sysctl -qw net.ipv4.ip_forward=1
    nsenter --net=/run/netns/$NS -- sysctl -qw net.ipv4.ip_forward=1
  fi
  # cgroup root of this node's pods, in every v1 hierarchy (cpuset needs its cpus and mems first)
  if v1; then for c in /sys/fs/cgroup/*/; do [ "$c" = /sys/fs/cgroup/unified/ ] && continue; mkdir -p $c$CG
      [ -e $c$CG/cpuset.cpus ] && { cat ${c}cpuset.cpus > $c$CG/cpuset.cpus; cat ${c}cpuset.mems > $c$CG/cpuset.mems; echo 1 > $c$CG/cgroup.clone_children; }; done
  else mkdir -p /sys/fs/cgroup/$CG; fi
  cat > "$D/containerd.toml" <<T
version = 2
root = "$D/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$D/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  # no CAP_SYS_RESOURCE on this machine: runc may not set a negative oom_score_adj
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "${SNAPSHOTTER:-overlayfs}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$D/cni"
T
  cat > "$D/cni/10-lab.conflist" <<T
{"cniVersion":"1.0.0","name":"lab","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":"$D/ipam","ranges":[[{"subnet":"$NET.$N.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
T
  cat > "$D/kubelet.yaml" <<T
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$CG
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
clusterDomain: cluster.local
clusterDNS: ["$NET.0.1"]
resolvConf: $D/etc/resolv.conf
staticPodPath: $D/etc/manifests
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: 20
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
cpuManagerPolicy: none
systemReserved: {}
T
  mkdir -p "$D/etc/manifests"; echo "nameserver $NET.0.1" > "$D/etc/resolv.conf"
  for k in node$N:kubelet proxy:proxy; do cat > "$D/${k##*:}.kc" <<K
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://$NET.0.1:$PORT", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: ${k%%:*}token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
K
  done
  cat > "$D/init.sh" <<T
#!/bin/bash
# pid 1 of the node: its own mounts, then the services; everything ends with this process
set -u
hostname node$N
mount -t tmpfs tmpfs /run -o mode=755
mkdir -p /run/containerd /run/netns /run/lock
# kubelet sets kernel-wide tunables; give it files of this node instead of the machine's own
for kv in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  f=/run/sysctl.\${kv%%=*}; mkdir -p \$(dirname \$f); echo \${kv##*=} > \$f; mount --bind \$f /proc/sys/\${kv%%=*}; done
mkdir -p /var/lib/kubelet /var/log/pods /var/log/containers; mount --bind $D/kubelet /var/lib/kubelet
mkdir -p $D/log/pods $D/log/containers; mount --bind $D/log/pods /var/log/pods; mount --bind $D/log/containers /var/log/containers
mkdir -p /mnt/storage; mount --bind $STORAGE /mnt/storage
cd $D
keep() { n=\$1; shift; ( while :; do "\$@" >>$D/\$n.log 2>&1; echo "\$n left with \$?" >>$D/\$n.log; sleep 2; done ) & }
keep containerd containerd -c $D/containerd.toml
for i in \$(seq 100); do ctr -a /run/containerd/containerd.sock version >/dev/null 2>&1 && break; sleep 0.2; done
for t in pause:registry.k8s.io/pause:3.10 python:docker.io/library/python:3.12-slim ${EXTRA_IMAGES:-}; do
  ctr -a /run/containerd/containerd.sock -n k8s.io images ls -q | grep -qx "\${t#*:}" && continue; t=\${t%%:*}
  ctr -a /run/containerd/containerd.sock -n k8s.io images import --snapshotter ${SNAPSHOTTER:-overlayfs} $IMG/\$t.tar >>$D/import.log 2>&1
done
keep kubelet kubelet --config $D/kubelet.yaml --kubeconfig $D/kubelet.kc --root-dir /var/lib/kubelet --cert-dir /var/lib/kubelet/pki --hostname-override node$N --node-ip $NET.0.1$N --node-labels kubernetes.io/os=linux,topology.kubernetes.io/zone=z$N ${KUBELET_ARGS:-} --v ${KUBELET_V:-2}
if command -v kube-proxy >/dev/null; then keep kube-proxy kube-proxy --kubeconfig $D/proxy.kc --hostname-override node$N --cluster-cidr $NET.0.0/16 --proxy-mode iptables --conntrack-max-per-core 0 --conntrack-min 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0; fi
while :; do wait -n; [ \$? = 127 ] && sleep 1; done
T
  chmod +x "$D/init.sh"
  # unshare forks; --kill-child: when the outer process goes, the node goes with it
  setsid nsenter --net=/run/netns/$NS -- unshare --mount --propagation shared --pid --uts --ipc --fork --kill-child --mount-proc /bin/bash "$D/init.sh" >>"$D/init.log" 2>&1 </dev/null &
  echo $! > "$D/init.pid"
  ;;
kill)  alive "$D/init.pid" && kill -9 "$(cat "$D/init.pid")"; rm -f "$D/init.pid" ;;
cut)   ip -n ${PREFIX}0 link set v$N down ;;
join)  ip -n ${PREFIX}0 link set v$N up ;;
rm)
  alive "$D/init.pid" && kill -9 "$(cat "$D/init.pid")"; rm -f "$D/init.pid"; sleep 1
  ip netns del $NS 2>/dev/null || true
  for c in /sys/fs/cgroup/*/; do [ -d $c$CG ] && find $c$CG -depth -type d -exec rmdir {} + 2>/dev/null || true; done
  rm -rf "$D" ;;
esac
