// The Go client, unchanged, against the kubeconfig of $KUBECONFIG: an informer keeps up with writes, as every
// controller does, and its cache is what the API server has. With -follow others write: for each line of its input it
// says what is in its cache, and what it was told twice.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace, objects = "kubectl-tests", 50

func run(follow bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	// Protobuf, as controllers have it.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	limit := 90 * time.Second
	if follow {
		limit = 15 * time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	only := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "by=informer" })
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), only)
	lister := factory.Core().V1().ConfigMaps().Lister()
	informer := factory.Core().V1().ConfigMaps().Informer()
	heard := &events{newest: map[types.UID]uint64{}, ended: map[types.UID]bool{}, twice: []string{}}
	if _, err := informer.AddEventHandler(heard); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("no first list of %v", kind)
		}
	}
	if follow {
		return tell(lister, heard)
	}
	maps := client.CoreV1().ConfigMaps(namespace)
	for n := range objects {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("by-informer-%d", n), Labels: map[string]string{"by": "informer"}}}
		if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := wait(ctx, "all are in the cache", func() bool { return count(lister.List) == objects }); err != nil {
		return err
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "by=informer"}); err != nil {
		return err
	}
	if err := wait(ctx, "none is in the cache", func() bool { return count(lister.List) == 0 }); err != nil {
		return err
	}
	if informer.IsStopped() {
		return fmt.Errorf("the informer has stopped")
	}
	if twice := heard.told(); len(twice) > 0 {
		return fmt.Errorf("told twice: %v", twice)
	}
	return nil
}

// For each line of the input, what is in the cache by now: until the input ends.
func tell(lister corev1listers.ConfigMapLister, heard *events) error {
	fmt.Println("go: synced")
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		all, err := lister.List(labels.Everything())
		if err != nil {
			return err
		}
		cached := map[types.UID]string{}
		for _, object := range all {
			cached[object.UID] = object.ResourceVersion
		}
		said, err := json.Marshal(map[string]any{"cache": cached, "twice": heard.told()})
		if err != nil {
			return err
		}
		fmt.Println(string(said))
	}
	return asked.Err()
}

// What the informer tells, as a controller hears it.
type events struct {
	lock   sync.Mutex
	newest map[types.UID]uint64
	ended  map[types.UID]bool
	twice  []string
}

func (e *events) OnAdd(object any, _ bool) { e.saw("added", object) }

func (e *events) OnUpdate(before, now any) {
	// An informer that has listed anew tells of each object once more. Controllers pass over one whose version is the same.
	if before.(*corev1.ConfigMap).ResourceVersion != now.(*corev1.ConfigMap).ResourceVersion {
		e.saw("changed", now)
	}
}

func (e *events) OnDelete(object any) {
	if unseen, is := object.(cache.DeletedFinalStateUnknown); is {
		object = unseen.Obj
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	uid := object.(*corev1.ConfigMap).UID
	if e.ended[uid] {
		e.twice = append(e.twice, fmt.Sprintf("deleted %s", uid))
	}
	e.ended[uid] = true
}

// Versions of one object only rise, and none is of a time after its end.
func (e *events) saw(what string, object any) {
	e.lock.Lock()
	defer e.lock.Unlock()
	live := object.(*corev1.ConfigMap)
	version, err := strconv.ParseUint(live.ResourceVersion, 10, 64)
	if err != nil || version <= e.newest[live.UID] || e.ended[live.UID] {
		e.twice = append(e.twice, fmt.Sprintf("%s %s at %s", what, live.UID, live.ResourceVersion))
	}
	e.newest[live.UID] = version
}

func (e *events) told() []string {
	e.lock.Lock()
	defer e.lock.Unlock()
	return append([]string{}, e.twice...)
}

func count(list func(labels.Selector) ([]*corev1.ConfigMap, error)) int {
	found, err := list(labels.Everything())
	if err != nil {
		return -1
	}
	return len(found)
}

func wait(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not in time", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func main() {
	follow := flag.Bool("follow", false, "write nothing, and say what is in the cache for each line of the input")
	flag.Parse()
	if err := run(*follow); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("go: ok")
}
