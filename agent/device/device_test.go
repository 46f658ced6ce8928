package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain/machine"
)

func gpus(uuids ...string) (out []machine.GPU) {
	for i, u := range uuids {
		out = append(out, machine.GPU{Index: i, UUID: u})
	}
	return out
}

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots int
		gpus  []machine.GPU
		want  []string
	}{
		{"auto without a gpu is one slot of the cpu", 0, nil, []string{""}},
		{"auto is one per gpu, unlike ones too", 0, gpus("GPU-a", "GPU-b"), []string{"GPU-a", "GPU-b"}},
		{"more slots than gpus share them in turn", 3, gpus("GPU-a", "GPU-b"), []string{"GPU-a", "GPU-b", "GPU-a"}},
		{"two slots on one gpu", 2, gpus("GPU-a"), []string{"GPU-a", "GPU-a"}},
		{"fewer slots leave gpus alone", 1, gpus("GPU-a", "GPU-b"), []string{"GPU-a"}},
		{"slots of the cpu", 2, nil, []string{"", ""}},
	} {
		if d := cmp.Diff(c.want, Assign(c.slots, c.gpus)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
	if n := len(Assign(1000, nil)); n != 64 {
		t.Errorf("%d slots, a machine has at most 64", n)
	}
}

func TestVisible(t *testing.T) {
	all := gpus("GPU-aa", "GPU-bb", "GPU-cc")
	for value, want := range map[string]string{"0,2": "GPU-aa GPU-cc", "GPU-bb": "GPU-bb", "GPU-b,GPU-a": "GPU-bb GPU-aa", "1,7,0": "GPU-bb", "": "", "-1": "", "NoDevFiles": ""} {
		var got []string
		for _, g := range Visible(all, value, true) {
			got = append(got, g.UUID)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: %q, want %q", value, s, want)
		}
	}
	if len(Visible(all, "", false)) != 3 {
		t.Error("an unset variable hides gpus")
	}
}

// table is what nvidia-smi prints for two unlike GPUs of which one tells little.
const table = `0, GPU-11111111-2222, NVIDIA GeForce RTX 3090, 24576, 20480, 87, 12, 64, [N/A], 301.50, 1695, 9501, 550.54.15
1, GPU-33333333-4444, NVIDIA GeForce RTX 4060 Laptop GPU, 8188, 8000, [N/A], [N/A], 41, N/A, [Unknown Error], [N/A], 405, 550.54.15
Unable to determine the device handle for GPU 0000:65:00.0: GPU is lost.  Reboot the system to recover this GPU
`

// users is what nvidia-smi pmon prints: process 1 is nobody's trainer and uses GPU 1; on GPU 0 it draws a desktop.
const users = `# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
# Idx           #    C/G      %      %      %      %      %      %    name
    0          1     G      3      1      -      -      -      -    Xorg
    0          -     -      -      -      -      -      -      -    -
    1          1   C+G     55     30      -      -      -      -    game
`

func TestProgramReadsTheTable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nif [ \"$1\" = pmon ]; then cat <<'E'\n"+users+"E\nexit; fi\ncat <<'E'\n"+table+"E\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newProgram(path, os.Getpid()).read()
	if r.Trouble != "" || r.Absent || r.Driver != "550.54.15" || len(r.GPUs) != 2 {
		t.Fatalf("%+v", r)
	}
	a, b := r.GPUs[0], r.GPUs[1]
	if a.Name != "NVIDIA GeForce RTX 3090" || a.Memory != (machine.Space{Total: 24576 << 20, Free: 20480 << 20}) || *a.Busy != 0.87 || *a.Watts != 301.5 || a.MemoryTemp != nil {
		t.Errorf("%+v", a)
	}
	if a.Others || !b.Others {
		t.Errorf("used by others: %v, %v", a.Others, b.Others)
	}
	if b.Index != 1 || b.Busy != nil || b.Watts != nil || *b.MemClockMHz != 405 {
		t.Errorf("%+v", b)
	}
}

func TestProgramSaysWhy(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	script := "#!/bin/sh\necho \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"\nexit 9\n"
	if err := os.WriteFile(broken, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{broken: "couldn't communicate", filepath.Join(dir, "none"): "no NVIDIA driver"} {
		if r := newProgram(name, os.Getpid()).read(); !r.Absent || !strings.Contains(r.Trouble, want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add(table)
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parse(s)
		if err == nil && len(r.GPUs) > machine.MaxGPUs {
			t.Error("too many gpus")
		}
	})
}

func TestHostMeasures(t *testing.T) {
	var v machine.Vitals
	host(&v, t.TempDir())
	if v.Memory.Total == 0 || v.Memory.Free > v.Memory.Total || v.Disk.Total == 0 {
		t.Errorf("%+v", v)
	}
	if processor() == "" {
		t.Error("no processor")
	}
}
