package doctor

// Code names a finding. A code keeps its meaning for ever; what is found anew gets a new one.
type Code string

// The codes.
const (
	NotJoined         Code = "not-joined"
	KeysDamaged       Code = "keys-damaged"
	NameUnknown       Code = "hub-name-unknown"
	PortBlocked       Code = "port-blocked"
	OwnAddress        Code = "own-address"
	ProxyRefuses      Code = "proxy-refuses"
	CertForeign       Code = "certificate-foreign"
	CertOver          Code = "certificate-over"
	WebsocketStripped Code = "websocket-stripped"
	HubNotReady       Code = "hub-not-ready"
	ClockOff          Code = "clock-off"
	TokenWrong        Code = "token-wrong"
	CredentialExpired Code = "credential-expired"
	MachineRefused    Code = "machine-refused"
	KeyShared         Code = "key-shared"
	OperatorKeyWrong  Code = "operator-key-wrong"
	DiskSmall         Code = "disk-small"
	TempFull          Code = "temp-full"
	FilesLow          Code = "files-low"
	DriverMissing     Code = "gpu-driver-missing"
	DriverSilent      Code = "gpu-driver-silent"
	PythonWrong       Code = "python-wrong"
	TorchMissing      Code = "torch-missing"
	CUDAMismatch      Code = "cuda-mismatch"
	SandboxUnusable   Code = "sandbox-unusable"
	Unfinished        Code = "check-unfinished"
)

// Meaning is a code for people.
type Meaning struct {
	Code  Code
	Means string
	Fix   string
}

// Codes is the whole table, in the order in which a way to the hub is built up.
func Codes() []Meaning {
	return []Meaning{
		{NotJoined, "the folder holds no membership of a pool", "`tensorturn agent join URL --token T`"},
		{KeysDamaged, "the keys of the folder cannot be read, or others can read them", "what the line says: mostly `chmod 600`, or join again"},
		{NameUnknown, "the hub's name, or the proxy's, has no address here", "correct the name, or the machine's DNS; inside a VPN start the VPN"},
		{PortBlocked, "no TCP connection to the hub, or the proxy, comes about", "start the hub, forward or open its port; behind a firewall set `HTTPS_PROXY`"},
		{OwnAddress, "a hub cannot reach its own public address, and answers on its own machine", "none when others reach it: many routers do not lead back; look from another machine"},
		{ProxyRefuses, "the proxy opens no tunnel to the hub", "let the proxy allow CONNECT to the hub's port; give user and password in `HTTPS_PROXY`"},
		{CertForeign, "who answers is not the hub that this machine joined, or that the token was made for", "correct the address; exempt the hub from TLS inspection; join the right pool"},
		{CertOver, "the hub's certificate has ended, is not valid yet, or does not name the address", "restart the hub with the right `--public-url`, or renew the owner's certificate"},
		{WebsocketStripped, "HTTPS passes and the WebSocket that agents work over does not", "let the proxy on the way pass `Upgrade: websocket` under `/nats`, or lead around it"},
		{HubNotReady, "the hub answers and does not take work: starting, full or read-only", "what `tensorturn hub status` says"},
		{ClockOff, "the machine's clock is more than two minutes off the hub's", "switch time synchronisation on"},
		{TokenWrong, "the join token is mistyped, for another pool, expired or used up", "a new one: `tensorturn token create` at the hub"},
		{CredentialExpired, "the machine's credential has ended, so its link does not open", "`tensorturn agent start` renews it when the hub is reached"},
		{MachineRefused, "the hub does not know the machine, has revoked or quarantined it", "join again with a new token; `tensorturn machine resume`"},
		{KeyShared, "two agents speak with one machine's key, mostly a copied folder or a cloned disk", "on one of the two remove the agent's folder and join with a new token"},
		{OperatorKeyWrong, "the hub does not take the key in its operator.json", "restart the hub: it writes the file anew"},
		{DiskSmall, "the disk of the folder has too little room", "make room, or another disk with `--dir`"},
		{TempFull, "the temporary folder is full, missing or cannot be written", "make room there, or set `TMPDIR`"},
		{FilesLow, "a process may open too few files", "`ulimit -n`, or `LimitNOFILE=` of the service"},
		{DriverMissing, "there is an NVIDIA card and no working driver", "install NVIDIA's driver; in a container pass the GPU on"},
		{DriverSilent, "the driver does not answer", "restart the machine; look for Xid in the kernel's log"},
		{PythonWrong, "the interpreter does not run, is too old, or is not the one that has torch", "`tensorturn agent start --python PATH`"},
		{TorchMissing, "the interpreter has no torch that can be imported", "install torch for that interpreter"},
		{CUDAMismatch, "torch and the GPU's driver do not fit each other", "a newer driver, or the build of torch for its CUDA; restart after an update of the driver"},
		{SandboxUnusable, "no sandbox proves itself on this machine", "install bubblewrap, or a kernel with Landlock (5.13)"},
		{Unfinished, "a check came to no end within its limit, and nothing else explains it", "look again; then see what its line says"},
	}
}
