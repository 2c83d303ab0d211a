# shellcheck shell=bash
# The lab's own certificate authority. Made anew for each lab; nothing trusts it but the lab.

pki() { echo "$LAB_DIR/pki/$1"; }

make_authority() {
    mkdir -p "$LAB_DIR/pki"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=lab-ca \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$(pki ca.key)" -out "$(pki ca.crt)" 2>/dev/null
    openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$(pki accounts.key)" 2>/dev/null
    openssl pkey -in "$(pki accounts.key)" -pubout -out "$(pki accounts.pub)"
    issue apiserver /CN=kube-apiserver serverAuth "IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"
    issue admin /O=system:masters/CN=lab-admin clientAuth
    kubeconfig "$(pki admin.crt)" "$(pki admin.key)" >"$LAB_DIR/admin.kubeconfig"
}

# issue NAME SUBJECT USAGE [NAMES]: pki/NAME.crt and pki/NAME.key. The serial number is random,
# so that two certificates of one node differ.
issue() {
    local extensions="basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=$3\n"
    [[ -z ${4:-} ]] || extensions+="subjectAltName=$4\n"
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$2" \
        -keyout "$(pki "$1.key")" -out "$(pki "$1.csr")" 2>/dev/null
    # shellcheck disable=SC2059  # the extensions are ours and hold line ends
    openssl x509 -req -in "$(pki "$1.csr")" -CA "$(pki ca.crt)" -CAkey "$(pki ca.key)" -days 30 \
        -set_serial "0x$(openssl rand -hex 16)" -extfile <(printf "$extensions") -out "$(pki "$1.crt")" 2>/dev/null
}

# kubeconfig CERTIFICATE KEY: on standard output; the authority is embedded.
kubeconfig() {
    cat <<END
apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    server: https://127.0.0.1:$LAB_PORT_API
    certificate-authority-data: $(base64 -w0 "$(pki ca.crt)")
users:
- name: self
  user:
    client-certificate: $1
    client-key: $2
contexts:
- name: lab
  context: {cluster: lab, user: self}
current-context: lab
END
}

# node_certificate HOST: certificate and key in one new dated file in the host, under the name that
# kubelets use. The link that the kubeconfig names changes over in one step.
node_certificate() {
    local host=$1 folder file
    folder=$(host_root "$1")/var/lib/kubelet/pki
    file=kubelet-client-$(date -u +%Y-%m-%d-%H-%M-%S-%N).pem
    issue "$host" "/O=system:nodes/CN=system:node:$host" clientAuth || return 1
    mkdir -p "$folder"
    (umask 077 && cat "$(pki "$host.crt")" "$(pki "$host.key")" >"$folder/$file")
    ln -s "/var/lib/kubelet/pki/$file" "$folder/.next.$$"
    mv -T "$folder/.next.$$" "$folder/kubelet-client-current.pem"
}
