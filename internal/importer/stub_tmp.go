package importer

func readManifests(c *conversion, files []File) {}
func readDkron(c *conversion, files []File)     {}
func readCronicle(c *conversion, files []File)  {}
func readOfelia(c *conversion, files []File)    {}
func readYacron(c *conversion, files []File)    {}
