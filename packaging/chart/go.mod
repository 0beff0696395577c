// The checks of the Helm chart, apart from the tools of a release, because the modules of Kubernetes are large.
module github.com/cronclave/cronclave/packaging/chart

go 1.26.0
