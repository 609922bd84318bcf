#!/bin/bash
# A small real cluster on one machine without pulling anything: etcd, kube-apiserver, controller-manager, scheduler in one
# network namespace, and NODES nodes, each a set of namespaces (net, mount, pid, uts, ipc) with its own containerd,
# kubelet and kube-proxy. Rerunnable. See README.md; the programs are in $BIN already.
#   env: as in env.sh; NODES (2), GRACE (--node-monitor-grace-period, 40s)
set -euo pipefail
. "$(dirname "$0")/env.sh"
NODES=${NODES:-2}; GRACE=${GRACE:-40s}
mkdir -p "$L" "$BIN" "$STORAGE"
log() { printf '%s +%4ss %s\n' "$(date +%T)" "$SECONDS" "$*"; }

# ---- 1. packages -------------------------------------------------------------------------------------------------
"$HERE/packages.sh" containerd:containerd runc:runc iptables:iptables conntrack:conntrack socat:socat mmdebstrap:mmdebstrap \
  buildah:buildah /usr/lib/cni/bridge:containernetworking-plugins >"$L/apt.log" 2>&1 || { code=$?; tail -n 20 "$L/apt.log"; exit $code; }
# ---- 2. images ---------------------------------------------------------------------------------------------------
[ -f "$IMG/python.tar" ] && [ -f "$IMG/pause.tar" ] || {
  "$HERE/image.sh" >"$L/image.log" 2>&1 || { code=$?; tail -n 20 "$L/image.log"; exit $code; }
  log "images"
}

# ---- 3. network: namespace ${PREFIX}0 with a bridge; nothing touches the machine's own interfaces ------------------
if [ ! -e /run/netns/${PREFIX}0 ]; then
  ip netns add ${PREFIX}0
  ip -n ${PREFIX}0 link set lo up
  ip -n ${PREFIX}0 link add br0 type bridge
  ip -n ${PREFIX}0 addr add $NET.0.1/24 dev br0
  ip -n ${PREFIX}0 link set br0 up
fi
# ---- 4. control plane ----------------------------------------------------------------------------------------------
cd "$L"
[ -f sa.key ] || openssl genrsa -out sa.key 2048 2>/dev/null
[ -f sa.pub ] || openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
{ echo 'admintoken,admin,admin-uid,"system:masters"'
  echo 'dnstoken,lab:coredns,dns-uid'; echo 'cmtoken,system:kube-controller-manager,cm-uid'; echo 'schedtoken,system:kube-scheduler,sched-uid'; echo 'proxytoken,system:kube-proxy,proxy-uid'
  for i in $(seq 1 9); do echo "node${i}token,system:node:node$i,node$i-uid,\"system:nodes\""; done; } > tokens.csv
kc() { cat > "$1" <<K
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "$2", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: $3}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
K
}
A=https://$NET.0.1:$PORT
kc kubeconfig https://127.0.0.1:$PORT admintoken; kc cm.kc $A cmtoken; kc sched.kc $A schedtoken; kc proxy.kc $A proxytoken
E1=$((PORT+1)); E2=$((PORT+2))
bg() { local n=$1; shift; alive $n.pid && return 0; setsid "$@" >>$n.log 2>&1 </dev/null & echo $! > $n.pid; }
bg etcd $N0 etcd --data-dir etcd --listen-client-urls http://127.0.0.1:$E1 --advertise-client-urls http://127.0.0.1:$E1 \
  --listen-peer-urls http://127.0.0.1:$E2 --initial-advertise-peer-urls http://127.0.0.1:$E2 --initial-cluster default=http://127.0.0.1:$E2 --unsafe-no-fsync
bg apiserver $N0 kube-apiserver --etcd-servers http://127.0.0.1:$E1 --secure-port $PORT --bind-address 0.0.0.0 \
  --advertise-address $NET.0.1 --cert-dir certs --service-account-key-file sa.pub --service-account-signing-key-file sa.key \
  --service-account-issuer https://kubernetes.default.svc --token-auth-file tokens.csv --authorization-mode Node,RBAC \
  --enable-admission-plugins NodeRestriction --service-cluster-ip-range $NET.255.0/24 --allow-privileged=true \
  --kubelet-preferred-address-types InternalIP
# the API on the machine's own loopback, over a unix socket (no route between the machine and the namespaces)
rm -f api.sock.old
bg apisock $N0 socat UNIX-LISTEN:$L/api.sock,fork,unlink-early TCP:127.0.0.1:$PORT
bg apiport socat TCP-LISTEN:$PORT,bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:$L/api.sock
for i in $(seq 240); do kubectl get --raw /readyz >/dev/null 2>&1 && break; sleep 0.5; done; kubectl get --raw /readyz >/dev/null
log "apiserver ready"
bg cm $N0 kube-controller-manager --kubeconfig cm.kc --authentication-kubeconfig cm.kc --authorization-kubeconfig cm.kc \
  --service-account-private-key-file sa.key --root-ca-file certs/apiserver.crt --use-service-account-credentials --leader-elect=false \
  --node-monitor-grace-period "$GRACE" --cert-dir cmcerts
bg sched $N0 kube-scheduler --kubeconfig sched.kc --authentication-kubeconfig sched.kc --authorization-kubeconfig sched.kc --leader-elect=false
{
  kc dns.kc $A dnstoken
  kubectl create clusterrolebinding lab-coredns --clusterrole=view --user=lab:coredns >/dev/null 2>&1 || true
  kubectl create clusterrole lab-coredns --verb=list,watch --resource=endpoints,services,pods,namespaces,endpointslices.discovery.k8s.io >/dev/null 2>&1 || true
  kubectl create clusterrolebinding lab-coredns2 --clusterrole=lab-coredns --user=lab:coredns >/dev/null 2>&1 || true
  printf '.:53 {\n bind %s.0.1\n errors\n kubernetes cluster.local in-addr.arpa {\n  kubeconfig %s/dns.kc x\n  pods insecure\n  ttl 5\n }\n cache 5\n}\n' "$NET" "$L" > Corefile
  bg coredns $N0 coredns -conf "$L/Corefile"
}
# the API server's user for kubelet calls is anonymous here: kubelets run with AlwaysAllow, inside the namespaces only

# ---- 5. nodes ------------------------------------------------------------------------------------------------------
for n in $(seq 1 "$NODES"); do "$HERE/node.sh" up "$n"; done
for i in $(seq 240); do [ "$(kubectl get nodes --no-headers 2>/dev/null | awk '$2=="Ready"' | wc -l)" -ge "$NODES" ] && break; sleep 0.5; done
kubectl get nodes -o wide
log "nodes ready; export KUBECONFIG=$KUBECONFIG PATH=$BIN:\$PATH"
