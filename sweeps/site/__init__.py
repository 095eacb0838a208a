"""The site to read offline: the guide, the jobs, and what the declarations say."""
