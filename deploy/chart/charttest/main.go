// Charttest renders and packs the Helm chart, and its tests show that Kubernetes and the program accept the result.
//
// It is a module of its own, so that users of Carillon need neither Helm (helm.sh/helm/v3: renders as helm does) nor
// Kubernetes (k8s.io/kubernetes: checks objects as its API server does).
package main

import (
	"flag"
	"fmt"
	"os"
)

// newest is the version of Kubernetes for which charts are rendered by default.
const newest = "v1.37.0"

func main() {
	dir := flag.String("out", "../../../dist/chart", "directory for the rendered examples and the packed chart")
	version := flag.String("version", "", "version of the chart and the image (default: that of Chart.yaml)")
	readme := flag.Bool("readme", false, "write the table of values into the chart's README instead")
	flag.Parse()
	if *readme {
		if err := updateReadme(); err != nil {
			fmt.Fprintln(os.Stderr, "charttest:", err)
			os.Exit(1)
		}
		return
	}
	if err := write(*dir, *version); err != nil {
		fmt.Fprintln(os.Stderr, "charttest:", err)
		os.Exit(1)
	}
	fmt.Println("rendered and packed in", *dir)
}
