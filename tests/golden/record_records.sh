#!/bin/sh
# Records records_4.3.1.json.gz anew. Usage: record_records.sh DIRECTORY_WITH_THE_JARS_OF_APACHE_KAFKA_4
set -eu
cd "$(dirname "$0")"
java -cp "$1/*" RecordGolden.java > records_4.3.1.json
gzip --best --no-name --force records_4.3.1.json
