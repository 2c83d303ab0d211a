// Command controlplane holds every program of the lab that is written in Go, the
// Kubernetes ones above all, in one static binary. The name it is called by (argv[0]) decides which of them it is, so
// one link step serves them all and their pages are shared in memory.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/cri-client/pkg/fake"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps the name of a call to what it runs; each returns its exit status.
var programs = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 func() int { return cli.Run(kubectl.NewDefaultKubectlCommand()) },
	"kubelet":                 runKubelet,
	"fakecri":                 runFakeRuntime,
	"ignite":                  runIgnite,
}

func main() {
	run, known := programs[filepath.Base(os.Args[0])]
	if !known {
		names := make([]string, 0, len(programs))
		for name := range programs {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "controlplane: call it through a link named %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

// runKubelet runs the kubelet in an empty working folder. The fake runtime
// reports empty log paths, and the kubelet removes "*" beside the log of a
// removed container, which is then everything in its working folder.
func runKubelet() int {
	folder, err := os.MkdirTemp("/run", "kubelet-empty-")
	if err == nil {
		err = os.Chdir(folder)
	}
	if err != nil {
		return fail("kubelet", err)
	}
	return cli.Run(kubelet.NewKubeletCommand(context.Background()))
}

// runFakeRuntime serves a container runtime that only pretends, on the unix
// socket of its first argument. The further arguments are the images that it
// claims to have; without one, and without a size, no pod would ever start.
func runFakeRuntime() int {
	if len(os.Args) < 3 {
		return fail("fakecri", fmt.Errorf("usage: fakecri SOCKET IMAGE..."))
	}
	socket := os.Args[1]
	// A socket of an earlier run makes the listener fail.
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return fail("fakecri", err)
	}
	runtime := fake.NewFakeRemoteRuntime()
	runtime.ImageService.SetFakeImageSize(1 << 20)
	runtime.ImageService.SetFakeImages(os.Args[2:])
	if err := runtime.Start("unix://" + socket); err != nil {
		return fail("fakecri", err)
	}
	select {}
}

func fail(program string, err error) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	return 1
}
