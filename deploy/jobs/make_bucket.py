"""Makes a bucket on the S3 server that the settings name, unless it is there.

    make_bucket.py NAME

It ends with status 4 while the server does not answer.
"""

import os
import sys

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

STORAGE = "TIDEGATE__STORAGE__"
THERE = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main(name: str) -> int:
    """Make the bucket, and return the exit status."""
    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=os.environ[f"{STORAGE}ENDPOINT_URL"],
        region_name=os.environ[f"{STORAGE}REGION"],
        aws_access_key_id=os.environ[f"{STORAGE}ACCESS_KEY_ID"],
        aws_secret_access_key=os.environ[f"{STORAGE}SECRET_ACCESS_KEY"],
    )
    try:
        client.create_bucket(Bucket=name)
    except ClientError as error:
        if error.response["Error"]["Code"] in THERE:
            return 0
        sys.stderr.write(f"bucket {name}: {error}\n")
        return 1
    except BotoCoreError as error:
        sys.stderr.write(f"bucket {name}: {error}\n")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
