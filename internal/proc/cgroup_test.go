package proc

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestParseCgroups(t *testing.T) {
	const text = "9:name=systemd:/system.slice/a:b.service\n4:cpu,cpuacct:/\n0::/x\n"
	want := []Cgroup{
		{ID: 9, Controllers: []string{"name=systemd"}, Path: "/system.slice/a:b.service"},
		{ID: 4, Controllers: []string{"cpu", "cpuacct"}, Path: "/"},
		{ID: 0, Path: "/x"},
	}
	got, err := ParseCgroups([]byte(text))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if at, ok := V2(got); !ok || at != "/x" {
		t.Errorf("V2: %q, %v", at, ok)
	}
	if at, ok := V2(got[:2]); ok {
		t.Errorf("V2 where there is none: %q", at)
	}
	for _, text := range []string{"\n", "1", "1:a", "x:a:/", "1:a:b", "-1::/", "1::", strings.Repeat("1:a:/\n", 300)} {
		if got, err := ParseCgroups([]byte(text)); err == nil {
			t.Errorf("%.40q parsed: %+v", text, got)
		}
	}
	if _, err := (FS{}).Cgroups(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func FuzzParseCgroups(f *testing.F) {
	f.Add([]byte("9:name=systemd:/system.slice/a\n0::/user.slice/user-1000.slice/user@1000.service/app.slice/x\\x2dy.service\n"))
	f.Add([]byte("3:cpu,cpuacct:/docker/" + id))
	f.Fuzz(func(t *testing.T, data []byte) {
		groups, err := ParseCgroups(data)
		if err != nil {
			return
		}
		var text strings.Builder
		for _, g := range groups {
			fmt.Fprintf(&text, "%d:%s:%s\n", g.ID, strings.Join(g.Controllers, ","), g.Path)
		}
		again, err := ParseCgroups([]byte(text.String()))
		if err != nil || !reflect.DeepEqual(groups, again) {
			t.Fatalf("%+v written and read again: %+v, %v", groups, again, err)
		}
		if w := WorkloadOf(groups); w.Runtime != "" && w.Container == "" {
			t.Fatalf("a runtime without a container: %+v", w)
		}
	})
}

const (
	id  = "5f1b0a4c3d2e1f00112233445566778899aabbccddeeff001122334455667788"
	id2 = "aaaaaaaaaaaaaaaa112233445566778899aabbccddeeff001122334455667788"
	pod = "0b9e1f2a-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
)

// The paths are those the runtimes build: docker and runc with the cgroupfs
// and the systemd driver, kubelet's cgroup manager, podman, lxc, systemd.
func TestWorkload(t *testing.T) {
	podUnder := strings.ReplaceAll(pod, "-", "_")
	tests := []struct {
		name string
		path string
		want Workload
	}{
		{"root", "/", Workload{}},
		{"docker, cgroupfs", "/docker/" + id, Workload{Container: id, Runtime: "docker"}},
		{"docker, systemd", "/system.slice/docker-" + id + ".scope", Workload{Container: id, Runtime: "docker"}},
		{"the docker daemon", "/system.slice/docker.service", Workload{Unit: "docker.service"}},
		{"docker in docker", "/docker/" + id + "/docker/" + id2, Workload{Container: id2, Runtime: "docker"}},
		{"systemd in docker", "/docker/" + id + "/system.slice/nginx.service", Workload{Container: id, Runtime: "docker", Unit: "nginx.service"}},
		{"kubernetes, cgroupfs", "/kubepods/burstable/pod" + pod + "/" + id, Workload{Container: id, PodUID: pod}},
		{"kubernetes, guaranteed", "/kubepods/pod" + pod + "/" + id, Workload{Container: id, PodUID: pod}},
		{"kubernetes, containerd, systemd", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + podUnder + ".slice/cri-containerd-" + id + ".scope",
			Workload{Container: id, Runtime: "containerd", PodUID: pod}},
		{"kubernetes, cri-o", "/kubepods.slice/kubepods-pod" + podUnder + ".slice/crio-" + id + ".scope/container", Workload{Container: id, Runtime: "cri-o", PodUID: pod}},
		{"kubernetes, nested paths", "/system.slice/containerd.service/kubepods-besteffort-pod" + podUnder + ".slice:cri-containerd:" + id,
			Workload{Container: id, Runtime: "containerd", PodUID: pod}},
		{"kubernetes, static pod", "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" + id, Workload{Container: id, PodUID: "0123456789abcdef0123456789abcdef"}},
		{"the pod's own group", "/kubepods.slice/kubepods-pod" + podUnder + ".slice", Workload{PodUID: pod}},
		{"podman", "/machine.slice/libpod-" + id + ".scope/container", Workload{Container: id, Runtime: "podman"}},
		{"podman's monitor", "/machine.slice/libpod-conmon-" + id + ".scope", Workload{Unit: "libpod-conmon-" + id + ".scope"}},
		{"podman, rootless", "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope", Workload{Container: id, Runtime: "podman"}},
		{"nerdctl", "/system.slice/nerdctl-" + id + ".scope", Workload{Container: id, Runtime: "containerd"}},
		{"ecs", "/ecs/1a2b3c4d1a2b3c4d1a2b3c4d1a2b3c4d/1a2b3c4d1a2b3c4d1a2b3c4d1a2b3c4d-1234567890", Workload{Container: "1a2b3c4d1a2b3c4d1a2b3c4d1a2b3c4d-1234567890", Runtime: "ecs"}},
		{"lxc", "/lxc.payload.web/system.slice/nginx.service", Workload{Container: "web", Runtime: "lxc", Unit: "nginx.service"}},
		{"lxc, old", "/lxc/web", Workload{Container: "web", Runtime: "lxc"}},
		{"unit", "/system.slice/postgresql@15-main.service", Workload{Unit: "postgresql@15-main.service"}},
		{"unit in a slice", "/system.slice/system-postgresql.slice/postgresql@15-main.service", Workload{Unit: "postgresql@15-main.service"}},
		{"group inside a unit", "/system.slice/x.service/worker", Workload{Unit: "x.service"}},
		{"escaped unit", `/system.slice/a\x2db\x2fc\x.service`, Workload{Unit: `a-b/c\x.service`}},
		{"user unit", "/user.slice/user-1000.slice/user@1000.service/app.slice/app.service", Workload{Unit: "app.service", User: "1000"}},
		{"login", "/user.slice/user-1000.slice/session-3.scope", Workload{Unit: "session-3.scope", User: "1000"}},
		{"outside our cgroup namespace", "/../../docker/" + id, Workload{Container: id, Runtime: "docker"}},
		{"too short for an id", "/docker/5f1b0a4c3d2e", Workload{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			groups, err := ParseCgroups([]byte("0::" + tt.path + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if got := WorkloadOf(groups); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestWorkloadOfHierarchies: on a host with v1 and v2, each may know less.
func TestWorkloadOfHierarchies(t *testing.T) {
	groups, err := ParseCgroups([]byte("4:memory:/docker/" + id + "\n1:name=systemd:/system.slice/docker.service\n0::/\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := WorkloadOf(groups), (Workload{Container: id, Runtime: "docker"}); got != want {
		t.Errorf("%+v", got)
	}
}
