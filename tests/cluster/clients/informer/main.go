// The Go client, unchanged, against the kubeconfig of $KUBECONFIG: an informer keeps up with writes, as every
// controller does, and its cache is what the API server has.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace, objects = "kubectl-tests", 50

func run() error {
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
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	only := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "by=informer" })
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), only)
	lister := factory.Core().V1().ConfigMaps().Lister()
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("no first list of %v", kind)
		}
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
	return nil
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
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("go: ok")
}
